"""The test set: AlpacaEval-shaped rows as samples, and each of them under each condition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from rolewise.attacks import CHATML, HACKED, MAIN_ATTACKS, Attack, Delimiters, attack_info, make_attack
from rolewise.attacks.registry import AttackRole, closed
from rolewise.data.structured_query.sources import Example, read_examples
from rolewise.data.structured_query.turns import Turn, Via, check_turn, earlier_turn, in_turn
from rolewise.samples import Payload, Position, Sample, audit, to_messages

Row = dict[str, Any]
"""`{"messages": [...], "meta": {...}}`."""

CLEAN, CEILING = "clean", "ceiling"
"""Conditions that are no attack: nothing injected; the payload where it may be followed."""


def load_samples(
    path: str | os.PathLike[str], *, payload: Payload = HACKED, with_input: bool | None = True
) -> list[Sample]:
    """The test samples of an AlpacaEval-shaped file (instruction, input, output), in its order.

    A sample's id is `row-<n>`, n being the row's number in the file, from 0, so that it does not depend on the choice
    of rows. Its answer is the row's output as it stands, which completion attacks forge.

    Args:
        path: a JSON array or JSONL.
        payload: what attacks inject.
        with_input: True for the rows with an input (208 in AlpacaEval), False for those without (for attacks in the
            user turn), None for all.

    Raises:
        FileNotFoundError, ValueError: when the file cannot be read, a row has a wrong field, two rows are the same, or
            no row is left; the message names the row.
    """
    samples: list[Sample] = []
    seen: dict[tuple[str, str], Example] = {}
    for example in read_examples(os.fspath(path), answered=False):
        if not isinstance(example, Example):
            raise ValueError(example.problem)
        if (first := seen.setdefault(example.key, example)) is not example:
            raise ValueError(
                f"{example.place} has the instruction and input of {first.place}; results of a row counted twice would "
                "look surer than they are: leave one of them out"
            )
        if with_input is not None and bool(example.input) is not with_input:
            continue
        sample = Sample(
            id=f"row-{example.index}",
            instruction=example.instruction,
            data=example.input,
            answer=example.output,
            task="structured_query",
            payload=payload,
        )
        samples.append(sample)
    if not samples:
        lack = (
            'with an input, which is the data to attack; take a file whose rows have text under "input"'
            if with_input
            else 'without an input, where all is in the user turn; take a file that has rows with "input": ""'
        )
        raise ValueError(f"{os.fspath(path)} has no row {lack}")
    return samples


def evaluation_conditions(
    samples: Iterable[Sample],
    attacks: Sequence[str] = MAIN_ATTACKS,
    *,
    seed: int | str = 0,
    real: Delimiters = CHATML,
    payload: Payload | None = None,
    role: AttackRole = "data",
    position: Position | None = None,
    struq_compat: bool = False,
    turn: Turn = "first",
    via: Via = "data",
) -> Iterator[Row]:
    """Every sample clean, under each attack in order, and with the payload where it may be followed (the ceiling).

    The ceiling is one step of the hierarchy above the attack: the user turn where attacks are in the data, the system
    message where they are in the user turn.

    In turn two, all conditions of a sample have the same ordinary exchange before their own turn, drawn by its seed and
    id; the system message, if any, stays in front. Where the ceiling's payload is in the system message, that exchange
    does not carry it out: the ceiling of turn two is for turn two.

    Messages end with the data: the answer is the model's to give. `meta` is the sample's `audit` with `condition`
    (clean, an attack's name or ceiling), `domain` (clean, in_domain, ood, secalign, custom or ceiling), `reference`
    (the right answer, without white space at its edges) and `data_chars` (the length of the data before the attack).

    Each condition of a sample has a generator of its own, so a subset of samples or attacks gives the same strings.

    Args:
        samples: from `load_samples`, or any with a payload.
        attacks: names from `rolewise.attacks.attack_names()`.
        seed: of what attacks draw.
        real: the delimiters of the attacked model's template (`rolewise.attacks.template_delimiters`).
        payload: injected in place of the samples' own.
        role: whose text the attacks are in.
        position: where in it, for the attacks that have no place of their own.
        struq_compat: repeat the accidents of StruQ's code in the attacks (the ceiling has none).
        turn: `second` puts an ordinary, answered exchange before the sample's own turn.
        via: `tool` makes the data the result of a tool that the assistant has called; it stays data.

    Raises:
        ValueError: for an unknown or repeated attack, another `turn` or `via`, or a sample without a payload.
    """
    check_turn(turn, via)
    if repeated := sorted({name for name in attacks if list(attacks).count(name) > 1}):
        raise ValueError(f"attacks={tuple(attacks)} names {repeated[0]!r} twice; leave one out")
    made = [(name, _made(name, role, position, real, struq_compat)) for name in attacks]
    ceiling = _in_user_turn if role == "data" else _in_system_message
    return _conditions(samples, made, seed, payload, ceiling, turn, via)


def _made(name: str, role: AttackRole, position: Position | None, real: Delimiters, struq_compat: bool) -> Attack:
    where = None if attack_info(name).positions else position
    return make_attack(name, role=role, position=where, real=real, struq_compat=struq_compat)


def _conditions(
    samples: Iterable[Sample],
    attacks: list[tuple[str, Attack]],
    seed: int | str,
    payload: Payload | None,
    ceiling: Attack,
    turn: Turn,
    via: Via,
) -> Iterator[Row]:
    for sample in samples:
        if payload is not None:
            sample = replace(sample, payload=payload)
        before = earlier_turn(sample, _generator(seed, sample, "earlier turn")) if turn == "second" else []
        for name, domain, asked in _asked(sample, attacks, seed, ceiling):
            yield {
                "messages": in_turn(to_messages(asked, answer=False), before, via),
                "meta": _meta(asked, sample, name, domain),
            }


def _asked(
    sample: Sample, attacks: list[tuple[str, Attack]], seed: int | str, ceiling: Attack
) -> Iterator[tuple[str, str, Sample]]:
    """Each condition with its domain, and the sample under it."""
    yield CLEAN, CLEAN, sample
    for name, attack in attacks:
        yield name, attack_info(name).domain, attack(sample, _generator(seed, sample, name))
    yield CEILING, CEILING, ceiling(sample, _generator(seed, sample, CEILING))


_in_user_turn = make_attack("naive", role="user")


def _in_system_message(sample: Sample, rng: Random) -> Sample:
    assert sample.payload is not None, "the attacks before it have looked"
    return replace(sample, system=f"{closed(sample.system or '')} {sample.payload.text}".strip())


def _generator(seed: int | str, sample: Sample, condition: str) -> Random:
    return Random(f"rolewise-sq:{seed}:{sample.id}:{condition}")


def _meta(sample: Sample, original: Sample, condition: str, domain: str) -> dict[str, Any]:
    return {
        **audit(sample),
        "condition": condition,
        "domain": domain,
        "reference": original.answer.strip(),
        "data_chars": len(original.data),
    }
