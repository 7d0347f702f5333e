"""Best-of-N: many random variants of the attacks that there are, until one works (after Hughes et al., 2024).

Each attempt draws a family of attacks (`rolewise.attacks`), the delimiters that it forges (the template's own, near
misses of them, or foreign ones), and changes of case and letters (`perturbing`). Nothing is learned from one attempt to
the next. Attempt k of a sample is the same whatever N is, so that a larger N only adds attempts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from rolewise.adaptive.perturbing import perturbation
from rolewise.adaptive.placing import Carrier
from rolewise.adaptive.trajectory import Answered, Attacked, Attempt, Nearest, Trajectory, criterion_named
from rolewise.attacks import CHATML, NEAR_MISSES, Delimiters, attack_info, foreign_delimiters, make_attack, near_miss
from rolewise.samples import Injection, Sample, to_messages

Ask = Callable[[Sequence[Mapping[str, Any]]], Awaitable[Answered]]
"""Asks the target a conversation (up to its answer)."""


async def best_of_n(
    sample: Sample,
    ask: Ask,
    *,
    attempts: int,
    attacks: Sequence[str],
    role: Carrier = "data",
    real: Delimiters = CHATML,
    criterion: str = "in_response",
    seed: int = 0,
) -> Attacked:
    """Attack a sample up to `attempts` times; stop at the first success.

    Args:
        sample: with a payload.
        ask: asks the target.
        attempts: N.
        attacks: names of attacks to draw from; those that forge an answer are left out for a sample that has none.
        role: whose text carries the attack.
        real: the delimiters of the target's template.
        criterion: what counts as a success.
        seed: of all that is drawn.

    Raises:
        ValueError: when `attempts` < 1, there is no attack to draw from, an attack or the criterion is unknown, or the
            sample has no payload.
    """
    if attempts < 1:
        raise ValueError(f"attempts={attempts} must be at least 1")
    follows = criterion_named(criterion)
    families = [name for name in attacks if sample.answer.strip() or not attack_info(name).forges]
    if not families:
        raise ValueError(f"no attack is left for sample {sample.id!r} of attacks={list(attacks)}; name more")
    if sample.payload is None:
        raise ValueError(f"sample {sample.id!r} has no payload to inject; set Sample.payload first")
    witness = sample.payload.witness
    nearest, made = Nearest(witness), list[Attempt]()
    for number in range(1, attempts + 1):
        rng = Random(f"rolewise-best-of-n:{seed}:{sample.id}:{number}")
        attacked, label = variant(sample, rng, families, role, real)
        text = attacked.injections[-1].text
        messages = to_messages(attacked, answer=False)
        answer = await ask(messages)
        success = not answer.refused and follows(answer.text, witness)
        made.append(Attempt(cost=number, success=success, label=label, text=text))
        nearest.offer(messages, answer, text, success)
        if success:
            break
    return nearest.attacked(
        Trajectory(
            method="best_of_n", unit="attempts", budget=attempts, criterion=criterion, attempts=tuple(made),
            settings={"attacks": list(attacks), "role": role, "seed": seed},
        )
    )  # fmt: skip


def variant(sample: Sample, rng: Random, attacks: Sequence[str], role: Carrier, real: Delimiters) -> tuple[Sample, str]:
    """One random attack on a sample, and what it is."""
    assert sample.payload is not None
    name = rng.choice(list(attacks))
    delimiters, said = _delimiters(rng, real)
    attacked = make_attack(name, role=role, real=delimiters)(sample, rng)
    change, changes = perturbation(rng, sample.payload.witness)
    label = name + (f", {said} delimiters" if attack_info(name).forges else "") + (f", {changes}" if changes else "")
    return _rewritten(attacked, sample, role, change), label


def _delimiters(rng: Random, real: Delimiters) -> tuple[Delimiters, str]:
    kind = rng.choice(("real", "near", "foreign"))
    if kind == "near":
        return near_miss(real, rng.choice(list(NEAR_MISSES))), kind
    return (foreign_delimiters(rng, "test") if kind == "foreign" else real), kind


def _rewritten(attacked: Sample, original: Sample, role: Carrier, change: Callable[[str], str]) -> Sample:
    """The attacked sample with each of its injections changed where it stands; the host text stays."""
    host = attacked.data if role == "data" else attacked.instruction
    kept, new = attacked.injections[: len(original.injections)], list[Injection]()
    for injection in attacked.injections[len(kept) :]:
        if injection.position == "end":
            at = len(host) - len(injection.text)
        else:
            at = 0 if injection.position == "begin" else host.index(injection.text)
        assert host[at : at + len(injection.text)] == injection.text, "an attack stands where it says"
        text = change(injection.text)
        host = host[:at] + text + host[at + len(injection.text) :]
        new.append(replace(injection, text=text))
    changed = {"data": host} if role == "data" else {"instruction": host}
    return replace(attacked, **changed, injections=(*kept, *new))
