"""Stages that a program makes of rows: taken as they are, taken apart, brought under a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rolewise.data.conflicts import conflict_rows
from rolewise.data.hierarchy.records import Outcome, Record, Reject, Turn, generator
from rolewise.data.hierarchy.stages import Conflict, Decompose, Inject, Override, Regenerate, Rules, Stage, Take
from rolewise.data.hierarchy.styles import OPENINGS, draw_style

NOT_ONE_TURN, NO_STYLE = "not one turn of text", "no rule fits the answer"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A stage of a recipe at work."""

    name: str
    stage: Stage
    seed: int
    records: Sequence[Record]
    """The rows that go in."""
    pool: Sequence[Record] = ()
    """All rows of its sources, for stages that combine rows."""


def suits(stage: Stage, taught: bool, record: Record) -> bool:
    """Whether a stage can do something with a row; others are left for other stages."""
    turn = record.turn
    if isinstance(stage, Take):
        return True
    if turn is None:
        return False
    if taught:
        # A prompt is taken apart where it is one piece; all else is done under a system message.
        return bool(turn.system) is not isinstance(stage, Decompose)
    if isinstance(stage, Decompose):
        return bool(turn.data) and not turn.system
    if isinstance(stage, Inject):
        return bool(turn.data)
    return not turn.system or not isinstance(stage, Regenerate | Override)


def take(job: Job) -> Iterator[Outcome]:
    """`Take`: rows as they are, perhaps under a system message."""
    assert isinstance(job.stage, Take)
    for record in job.records:
        if job.stage.system and record.messages[0]["role"] != "system":
            system = {"role": "system", "content": job.stage.system}
            record = replace(record, messages=[system, *record.messages])
        yield record


def decompose(job: Job) -> Iterator[Outcome]:
    """`Decompose` by program: the source has taken the rows apart; some get a system message."""
    assert isinstance(job.stage, Decompose)
    for record in job.records:
        turn = _turn(record)
        rng = generator(job.seed, job.name, record.id)
        system = rng.choice(OPENINGS) if rng.random() < job.stage.system_share else ""
        yield record.made(replace(turn, system=system), "decomposed")


def regenerate(job: Job) -> Iterator[Outcome]:
    """`Regenerate` by program: a rule on form in the system message, and the answer in that form."""
    assert isinstance(job.stage, Regenerate)
    for record in job.records:
        turn = _turn(record)
        rng = generator(job.seed, job.name, record.id)
        drawn = draw_style(rng, turn.answer)
        if drawn is None:
            yield Reject(id=record.id, reason=NO_STYLE)
            continue
        style, answer = drawn
        rule = rng.choice(style.rule)
        yield record.made(
            replace(turn, system=opened(rng.choice(OPENINGS), rule, rng.random()), answer=answer),
            "rule",
            rule=rule,
            kind=style.family,
        )


def rules(job: Job) -> Iterator[Outcome]:
    """`Rules`: generated rows with a rule of the system, kept, and no conflict."""
    assert isinstance(job.stage, Rules)
    stream = conflict_rows(8 * job.stage.take, seed=_stream_seed(job))
    yield from (_generated(row) for row in stream if row["meta"]["condition"] == "rule")


def conflict(job: Job) -> Iterator[Outcome]:
    """`Conflict` by program: generated conflicts, each with its twin."""
    assert isinstance(job.stage, Conflict)
    rows = conflict_rows(8 * (-(-job.stage.take // 3)), seed=_stream_seed(job), channels=job.stage.chosen)
    paired = (row for row in rows if row["meta"]["pair"] is not None)
    chosen: dict[str, list[dict[str, Any]]] = {}
    for row in paired:
        chosen.setdefault(row["meta"]["pair"], []).append(row)
    for pair in islice(chosen.values(), job.stage.take):
        yield from map(_generated, pair)


def opened(opening: str, rule: str, draw: float) -> str:
    """A system message with a rule: behind an opening, before it, or alone."""
    return f"{opening} {rule}" if draw < 0.5 else f"{rule} {opening}" if draw < 0.7 else rule


def _generated(row: dict[str, Any]) -> Record:
    meta = {name: value for name, value in row["meta"].items() if name not in ("id", "held_out")}
    return Record(id=f"conflict-{row['meta']['id']}", messages=row["messages"], meta=meta)


def _stream_seed(job: Job) -> str:
    return f"hierarchy:{job.seed}:{job.name}"


def _turn(record: Record) -> Turn:
    turn = record.turn
    assert turn is not None, "the stage does not take such rows"
    return turn
