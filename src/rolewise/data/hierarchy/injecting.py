"""Indirect injection: another row's instruction in the data, with the answer unchanged, and twins.

As in Adversarial Alpaca (`rolewise.data.structured_query.training`), over rows that may have a system message. A twin
has the very same extra instruction in the user turn, and both answers: without any, a model learns to be deaf to every
second instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from rolewise.attacks import make_attack
from rolewise.data.hierarchy.programs import Job
from rolewise.data.hierarchy.records import Outcome, Record, Reject, Turn, generator
from rolewise.data.hierarchy.stages import Inject
from rolewise.data.structured_query.sources import Example
from rolewise.data.structured_query.training import payload_of
from rolewise.samples import Payload, Position, Sample

NO_DONOR = "nothing to inject"
_POSITIONS: tuple[Position, ...] = ("begin", "middle", "end")


@dataclass(frozen=True)
class _Donor:
    """A row whose instruction is injected into others."""

    id: str
    turn: Turn

    @property
    def payload(self) -> Payload:
        turn = self.turn
        example = Example(instruction=turn.user, input=turn.data, output=turn.answer, place=self.id, index=0)
        return payload_of(example)


def inject(job: Job) -> Iterator[Outcome]:
    """`Inject`: the attacked row and, for a share of the rows, its twin."""
    assert isinstance(job.stage, Inject)
    donors = [_Donor(record.id, turn) for record in job.pool if (turn := record.turn) and _short(job.stage, turn)]
    for number, record in enumerate(job.records):
        turn = record.turn
        assert turn is not None
        rng = generator(job.seed, job.name, record.id)
        other, third = _others(rng, donors, turn)
        if other is None or third is None:
            yield Reject(id=record.id, reason=NO_DONOR, detail="fewer than two other instructions are short enough")
            continue
        name = job.stage.attacks[number % len(job.stage.attacks)]
        # Every n-th row, so that the share is exact: rows come in a drawn order.
        twinned = int((number + 1) * job.stage.twins) > int(number * job.stage.twins)
        yield from _attacked(record, turn, job.stage, name, other, third, rng, twinned)


def _attacked(
    record: Record, turn: Turn, stage: Inject, name: str, other: _Donor, third: _Donor, rng: Random, twinned: bool
) -> Iterator[Record]:
    decoy = third.turn.answer if stage.forged == "other" else None
    sample = Sample(
        id=record.id, instruction=turn.user, data=turn.data, answer=turn.answer, payload=other.payload, decoy=decoy
    )
    position: Position = "end" if stage.position == "end" else rng.choice(_POSITIONS)
    where = {} if name not in ("naive", "completion_other") and stage.position == "end" else {"position": position}
    attack = make_attack(name, split="train", forged="reference" if decoy is None else "decoy", **where)
    attacked = attack(sample, rng)
    pair = record.id if twinned else None
    injected = {"injected_row": other.id, "attack": name}
    yield record.made(replace(turn, data=attacked.data), "injected", **injected, injections=_audit(attacked), pair=pair)
    if twinned:
        twin = make_attack("naive", role="user", split="train")(sample, rng)
        both = f"{turn.answer.rstrip()}\n\n{other.turn.answer.lstrip()}"
        yield record.made(
            replace(turn, user=twin.instruction, answer=both), "twin", **injected, injections=_audit(twin), pair=pair
        )


def _audit(sample: Sample) -> list[dict[str, str]]:
    return [{"role": one.role, "position": one.position, "text": one.text} for one in sample.injections]


def _short(stage: Inject, turn: Turn) -> bool:
    """Whether a row may be injected into others."""
    size = len(turn.user) + len(turn.data) + (len(turn.answer) if stage.twins else 0)
    return stage.max_injected_chars is None or size <= stage.max_injected_chars


def _others(rng: Random, donors: list[_Donor], turn: Turn) -> tuple[_Donor | None, _Donor | None]:
    """Two rows with instructions of their own: the row's own again would be no extra instruction."""
    asked, found = {turn.key[0]}, list[_Donor]()
    for donor in (donors[rng.randrange(len(donors))] for _ in range(1000 if donors else 0)):
        if donor.turn.key[0] not in asked:
            asked.add(donor.turn.key[0])
            found.append(donor)
        if len(found) == 2:
            return found[0], found[1]
    return None, None
