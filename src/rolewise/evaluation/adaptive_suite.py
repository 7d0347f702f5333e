"""The suite of attacks that adapt to the model: `adaptive`, with GCG, PAIR and best-of-N."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inspect_ai import Task, task, task_with
from inspect_ai.model import get_model, model_roles
from inspect_ai.scorer import Scorer

from rolewise.adaptive.placing import Carrier, check_carrier
from rolewise.adaptive.trajectory import criterion_named
from rolewise.attacks import payload_named
from rolewise.data.structured_query import evaluation_conditions
from rolewise.evaluation.adaptive_solver import AdaptivePlan, adapt
from rolewise.evaluation.outcomes import CLEAN
from rolewise.evaluation.provider import RolewiseAPI
from rolewise.evaluation.running import other_model
from rolewise.evaluation.scorers import begins_with, in_response, rouge_l
from rolewise.evaluation.suite_task import make_task
from rolewise.evaluation.suites import DIRECT_SYSTEM, chosen_delimiters
from rolewise.evaluation.testsets import chosen_attacks, find_data, load_test_samples
from rolewise.samples import Sample
from rolewise.unknown import unknown_name

BUDGETS = {"gcg": 50, "pair": 20, "best_of_n": 50}
"""The methods, and what each may spend where no budget is given: steps of GCG, attempts of the others."""


@task
def adaptive(
    data: str | None = None,
    method: str | list[str] = "best_of_n",
    budget: int | None = None,
    payload: str = "hacked",
    role: str = "data",
    criterion: str = "in_response",
    limit: int | None = None,
    seed: int = 0,
    epochs: int = 1,
    system: str | None = None,
    attacks: str | list[str] = "all",
    delimiters: str | None = None,
    streams: int = 4,
    attacker: str | None = None,
    candidates: int = 32,
    top_k: int = 64,
    suffix_tokens: int = 20,
    check_every: int = 5,
    base_attack: str = "naive",
    data_role: str = "user",
    max_tokens: int = 32,
    temperature: float = 0.0,
    answers: str | None = None,
) -> Task:
    """Attacks that try again until they succeed or their budget is spent: how many samples fall, and how soon?

    Each sample is asked clean, with the payload where it may be followed (the ceiling), and attacked by each method. A
    method ends with the first success by `criterion`; the answer of that attempt is judged by all criteria, and the
    metadata has the whole trajectory (`rolewise.adaptive.trajectories_of`).

    Args:
        data: as for `structured_query`; rows with an input for attacks in the data, without one in the user turn.
        method: gcg (our models only), pair, best_of_n, or several, separated by commas.
        budget: steps of GCG, attempts of the others, for each sample; by default those of `BUDGETS`.
        payload: the name of what is to be carried out (`rolewise.attacks.PAYLOADS`); its witness is GCG's target.
        role: whose text carries the attack: data, or user (below a system message).
        criterion: when an attempt has succeeded: in_response or begins_with.
        limit: the number of samples, each with all its conditions.
        seed: of what the methods draw.
        epochs: how often each row is attacked.
        system: for role=user, the system message; by default `DIRECT_SYSTEM`.
        attacks: best_of_n: the attacks to draw from, by names as for `structured_query`.
        delimiters: best_of_n: what completion attacks forge; by default the model's own.
        streams: pair: how many lines of tries are refined in turn.
        attacker: pair: the attacker model; by default the model role `attacker`.
        candidates, top_k, suffix_tokens, check_every: gcg: as `rolewise.adaptive.gcg.GCGConfig` has them.
        base_attack: gcg: the attack behind which the suffix stands.
        data_role: what data becomes for a model: `user` (a message of its own, DATA for ours), or `tool`.
        max_tokens: the most new tokens of an answer.
        temperature: of the target's answers; GCG's checks are always greedy.
        answers: a file that keeps answers and GCG's steps, so that a killed run repeats none.

    Raises:
        ValueError: for an unknown method, criterion, attack, payload or delimiter, a number out of range, a system
            message that no row would have, GCG on a model that is not ours, or PAIR without an attacker.
        FileNotFoundError: when the named file does not exist; the message says what it is and where to get it.
    """
    methods = chosen_methods(method)
    criterion_named(criterion)
    carrier = check_carrier(role)
    if system is not None and (carrier == "data" or not system.strip()):
        raise ValueError(f"system={system!r} is for role='user', and must have text; leave it out")
    ours = isinstance(get_model().api, RolewiseAPI)
    if "gcg" in methods and not ours:
        raise ValueError(
            f"gcg needs the weights of a model of ours (rolewise/<path>), and {get_model()} has none to show; use "
            "method=pair or best_of_n"
        )
    if "gcg" in methods and data_role != "user":
        raise ValueError(f"gcg attacks data as such; leave data_role={data_role!r} out")
    for name, value in (("budget", budget), ("streams", streams), ("candidates", candidates), ("top_k", top_k),
                        ("suffix_tokens", suffix_tokens), ("check_every", check_every)):  # fmt: skip
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    source = find_data("structured_query" if carrier == "data" else "direct_injection", data)
    samples = _samples(source, payload, limit, carrier, system)
    plan = AdaptivePlan(
        samples={sample.id: sample for sample in samples},
        budgets={name: budget or BUDGETS[name] for name in methods},
        role=carrier,
        criterion=criterion,
        seed=seed,
        attacks=chosen_attacks(attacks),
        real=chosen_delimiters(delimiters),
        streams=streams,
        attacker=_attacker(attacker) if "pair" in methods else None,
        gcg={"candidates": candidates, "top_k": top_k, "suffix_tokens": suffix_tokens, "check_every": check_every},
        base_attack=chosen_attacks(base_attack)[0],
        data_role=data_role,
        settings={"max_tokens": max_tokens, "temperature": temperature, **({"seed": seed} if temperature > 0 else {})},
        answers=answers,
    )
    made = make_task(
        _rows(samples, methods, carrier, seed), "adaptive", source, scorers=_scorers(), max_tokens=max_tokens,
        temperature=temperature, epochs=epochs, answers=answers, seed=seed, data_role=data_role,
    )  # fmt: skip
    return task_with(made, solver=adapt(plan))


def chosen_methods(method: str | Sequence[str]) -> list[str]:
    """The methods, without repetitions.

    Raises:
        ValueError: for an unknown one (the nearest is named), or none.
    """
    given = [part.strip() for part in method.split(",")] if isinstance(method, str) else list(method)
    for name in given:
        if name not in BUDGETS:
            raise unknown_name("method", name, BUDGETS)
    return list(dict.fromkeys(given))


def _samples(source: str, payload: str, limit: int | None, role: Carrier, system: str | None) -> list[Sample]:
    samples = load_test_samples(source, payload_named(payload), limit, with_input=role == "data")
    if role == "data":
        return samples
    return [replace(sample, system=DIRECT_SYSTEM if system is None else system) for sample in samples]


def _rows(samples: Iterable[Sample], methods: Sequence[str], role: Carrier, seed: int) -> Iterator[Mapping[str, Any]]:
    """Each sample clean, once for each method, and as ceiling; a method's row is still unattacked."""
    for row in evaluation_conditions(samples, [], seed=seed, role=role):
        yield row
        if row["meta"]["condition"] == CLEAN:
            for method in methods:
                yield {**row, "meta": {**row["meta"], "condition": method, "domain": "adaptive"}}


def _scorers() -> list[Scorer]:
    return [in_response(), begins_with(), rouge_l()]


def _attacker(name: str | None) -> Callable[[], Any]:
    """The attacker model, when it is needed.

    Raises:
        ValueError: when no model was named, and none has the role.
    """
    if name is not None:
        return lambda: other_model(name, "attacker")
    if "attacker" not in model_roles():
        raise ValueError(
            "pair needs an attacker model: give attacker=provider/model (inspect eval: or a --model-role of that name)"
        )
    return lambda: get_model(role="attacker", required=True)
