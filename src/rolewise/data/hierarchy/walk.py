"""One pass over the stages of a recipe: which rows each takes, and what it came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolewise.data.hierarchy.programs import Job, suits
from rolewise.data.hierarchy.recipe import Recipe
from rolewise.data.hierarchy.records import Outcome, Record, Reject, in_drawn_order
from rolewise.data.hierarchy.stages import Stage
from rolewise.data.teacher import Estimate


@dataclass(frozen=True, kw_only=True)
class Count:
    """What a source or a stage came to."""

    name: str
    what: str
    """`source`, or the kind of stage and who made its rows."""
    taken: int
    """Rows in."""
    made: int
    """Rows out; a row may have a twin."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """Rows left out, by reason."""
    kept: bool = False
    """Whether an earlier run had finished it."""

    def __str__(self) -> str:
        total = sum(self.rejected.values())
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(self.rejected.items()))
        told = f"{self.name:<16} {self.what:<20} {self.taken:>9,} in {self.made:>9,} out {total:>9,} rejected"
        return told + (f" ({reasons})" if reasons else "") + (", finished before" if self.kept else "")


@dataclass(frozen=True, kw_only=True)
class StageEstimate:
    """What a stage will ask of the teacher."""

    name: str
    estimate: Estimate
    approximate: bool
    """Whether its rows wait for other answers, so that it was estimated with stand-ins for them."""

    def __str__(self) -> str:
        rough = " (roughly: it waits for other answers)" if self.approximate else ""
        return f"{self.name}{rough}: " + "; ".join(str(self.estimate).splitlines())


class Walk:
    """One pass.

    Args:
        recipe: whose stages.
        sources: the rows of its sources, in a drawn order.
    """

    def __init__(self, recipe: Recipe, sources: Mapping[str, Sequence[Record]]) -> None:
        self.made: dict[str, list[Record]] = {}
        """The rows of each stage so far."""
        self.counts: list[Count] = []
        self.rejects: list[dict[str, Any]] = []
        self.estimates: list[StageEstimate] = []
        self.rough = set[str]()
        """Stages whose rows are stand-ins, or made of such."""
        self._recipe, self._sources = recipe, sources
        self._taken = set[str]()

    def draw(self, name: str, stage: Stage) -> Job:
        """The rows that go into a stage. A row of a source goes into one stage only.

        Raises:
            ValueError: when there are too few that suit it.
        """
        taught = self._recipe.taught(name)
        pool = self._pool(name, stage)
        fresh = [record for record in pool if record.id not in self._taken or not self._is_of_source(record, stage)]
        records = [record for record in fresh if suits(stage, taught, record)][: stage.take] if stage.source else []
        if stage.source and len(records) < stage.take:
            have = "has" if len(stage.source) == 1 else "have"
            raise ValueError(
                f"{self._recipe.place}: stages.{name} takes {stage.take:,} rows, but {' and '.join(stage.source)} "
                f"{have} only {len(records):,} left that suit it; lower stages.{name}.take, or widen the source"
            )
        self._taken.update(record.id for record in records if self._is_of_source(record, stage))
        return Job(name=name, stage=stage, seed=self._recipe.seed, records=records, pool=pool)

    def add(self, name: str, job: Job, outcomes: Sequence[Outcome], *, kept: bool) -> Count:
        """What a stage came to."""
        taught = self._recipe.taught(name)
        what = f"{type(job.stage).__name__.lower()} by {'teacher' if taught else 'program'}"
        taken = len(job.records) if job.stage.source else job.stage.take
        self.made[name], count, rejects = sorted_out(name, what, taken, outcomes, kept=kept)
        self.counts.append(count)
        self.rejects += rejects
        return count

    def _pool(self, name: str, stage: Stage) -> list[Record]:
        """All rows of what a stage takes from, in the order in which it takes them."""
        found: dict[str, Record] = {}
        for one in stage.source:
            if one in self._sources:
                records = self._sources[one]
            else:  # a twin is the answer to another row; by itself it would say the contrary
                records = in_drawn_order(self.made[one], self._recipe.seed, name)
                records = [record for record in records if record.meta.get("condition") != "twin"]
            for record in records:
                found.setdefault(record.id, record)
        several = len(stage.source) > 1
        return in_drawn_order(found.values(), self._recipe.seed, "source") if several else list(found.values())

    def _is_of_source(self, record: Record, stage: Stage) -> bool:
        return any(one in self._sources and record.id.startswith(f"{one}[") for one in stage.source)


def sorted_out(
    name: str, what: str, taken: int, outcomes: Sequence[Outcome], *, kept: bool
) -> tuple[list[Record], Count, list[dict[str, Any]]]:
    """The records, the count, and the rejects as they are written."""
    records = [one for one in outcomes if isinstance(one, Record)]
    rejected = [one for one in outcomes if isinstance(one, Reject)]
    reasons = dict(Counter(one.reason for one in rejected))
    count = Count(name=name, what=what, taken=taken, made=len(records), rejected=reasons, kept=kept)
    rejects = [
        {"step": name, "id": one.id, "reason": one.reason, "detail": one.detail, "raw": one.raw} for one in rejected
    ]
    return records, count, rejects
