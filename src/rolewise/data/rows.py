"""Rows for training and for tests, as conversations with roles, ready for JSONL.

Training rows come in blocks of six: two clean, one attacked naively and one by completion in foreign delimiters,
each with the *twin* in which the very same payload stands in the user turn and is carried out. Seen without
twins, that is Adversarial Alpaca's mix of 50 / 25 / 25 %. A model can tell the two halves of a pair apart only by
the role: the payload's string, the task, the text and the begin of the answer are the same.

What an answer looks like: the answer to the user's instruction, and, after a line break, the payload's witness if
the payload stands in the user turn. So one token after the answer decides, and it is learned quickly.

Some shortcuts that the mix closes: payloads stand at the begin, in the middle or at the end of the data, before
or after the user's instruction; some twins carry another payload in their data, so "an odd sentence in the data"
does not mean "no second answer"; some clean user turns are long; forged answers are wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

from rolewise.attacks import CHATML, MAIN_ATTACKS, Delimiters, make_attack
from rolewise.data.generate import generate_sample, independent_payload, task_of
from rolewise.samples import Position, Sample, audit, to_messages

Row = dict[str, Any]
"""`{"messages": [...], "meta": {...}}`."""

CLEAN, CEILING, TWIN = "clean", "ceiling", "twin"
"""Conditions of a row that are not attacks."""

BOTH_SHARE = 0.25
"""The share of twins whose data carries another payload, to be ignored."""

_BLOCK = 6


def training_rows(n: int, seed: int | str = 0) -> Iterator[Row]:
    """`n` training rows; a longer run with the same seed begins with the same rows.

    `meta` holds `condition` (clean, naive, completion_other or twin), `pair` (the id that an attacked row shares
    with its twin, else None), what was injected, and what `rolewise.quickstart.scoring` needs.

    Raises:
        ValueError: when `n` is negative.
    """
    if n < 0:
        raise ValueError(f"n={n} must not be negative")
    return islice(_training_stream(f"rolewise-train:{seed}"), n)


def _training_stream(seed: str) -> Iterator[Row]:
    block = 0
    while True:
        rng = Random(f"{seed}:block:{block}")
        # A block uses four samples: two clean ones, and two for a pair each.
        ids = [block * 4 + i for i in range(4)]
        samples = [generate_sample(rng, "train", id=f"train-{i}", task=task_of(seed, i)) for i in ids]
        rows = [_row(replace(sample, payload=None), CLEAN) for sample in samples[:2]]
        rows += _pair(samples[2], "naive", rng) + _pair(samples[3], "completion_other", rng)
        assert len(rows) == _BLOCK
        yield from rng.sample(rows, _BLOCK)
        block += 1


def _pair(sample: Sample, name: str, rng: Random) -> list[Row]:
    """The attacked sample, whose answer does not change, and its twin, whose answer carries out both."""
    assert sample.payload is not None

    def attacked(host: Sample) -> Sample:
        position = rng.choice(host.positions)
        return make_attack(name, split="train", position=position, forged="decoy")(host, rng)

    twin = _in_user_turn(sample, rng)
    if rng.random() < BOTH_SHARE:
        other = independent_payload(rng, "train", sample, other=sample.payload)
        twin = replace(attacked(replace(twin, payload=other)), payload=sample.payload)
    answer = f"{sample.answer}\n{sample.payload.witness}"
    return [_row(attacked(sample), name, pair=sample.id), _row(twin, TWIN, pair=sample.id, answer=answer)]


def _in_user_turn(sample: Sample, rng: Random) -> Sample:
    """The sample with its payload in the user turn, after the instruction twice as often as before it."""
    position: Position = rng.choice(("begin", "end", "end"))
    return make_attack("naive", role="user", position=position)(sample, rng)


def evaluation_rows(
    n: int,
    seed: int | str = 0,
    *,
    attacks: Sequence[str] = MAIN_ATTACKS,
    real: Delimiters = CHATML,
    position: Position = "end",
) -> Iterator[Row]:
    """Rows for `n` test samples: each clean, under each attack, and with the payload in the user turn (ceiling).

    So `n * (len(attacks) + 2)` rows, without an assistant message, a sample's rows one after the other. Texts,
    wordings, payloads and attack vocabulary come from the test split. `meta` holds `id` (of the sample),
    `condition` (clean, an attack's name or ceiling), the answer and the payload with its witness. A longer run
    with the same seed begins with the same rows.

    Args:
        n: the number of samples.
        seed: of the samples and of the attacks; an attack's text does not depend on which others are asked for.
        attacks: names from `rolewise.attacks.attack_names()`, injected into the data.
        real: the delimiters of the attacked model's template, for `completion_real`.
        position: where in the data the attacks stand, for samples whose answer stays right.

    Raises:
        ValueError: when `n` is negative, or for an unknown or repeated attack.
    """
    if n < 0:
        raise ValueError(f"n={n} must not be negative")
    if len(set(attacks)) != len(attacks):
        raise ValueError(f"attacks={tuple(attacks)} names an attack twice")
    for name in attacks:
        make_attack(name)
    return _test_stream(n, f"rolewise-test:{seed}", tuple(attacks), real, position)


def _test_stream(n: int, seed: str, attacks: tuple[str, ...], real: Delimiters, position: Position) -> Iterator[Row]:
    for index in range(n):
        sample = generate_sample(
            Random(f"{seed}:sample:{index}"), "test", id=f"test-{index}", task=task_of(seed, index)
        )
        yield _row(sample, CLEAN, answered=False)
        where: Position = position if position in sample.positions else "end"
        for name in attacks:
            attack = make_attack(name, split="test", position=where, real=real)
            attacked = attack(sample, Random(f"{seed}:{name}:{index}"))
            yield _row(attacked, name, answered=False)
        ceiling = _in_user_turn(sample, Random(f"{seed}:{CEILING}:{index}"))
        yield _row(ceiling, CEILING, answered=False)


def _row(
    sample: Sample, condition: str, *, pair: str | None = None, answer: str | None = None, answered: bool = True
) -> Row:
    meta = {**audit(sample), "condition": condition, "pair": pair}
    if answer is not None:
        sample = replace(sample, answer=answer)
    return {"messages": to_messages(sample, answer=answered), "meta": meta}
