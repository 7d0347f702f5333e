"""From a recipe to rows: sources, then stage after stage, then the mix. Finished stages and paid answers are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolewise.data.hierarchy import programs, taught
from rolewise.data.hierarchy.extracting import ask, extract
from rolewise.data.hierarchy.injecting import inject
from rolewise.data.hierarchy.mixing import check_counts, mix
from rolewise.data.hierarchy.overriding import override
from rolewise.data.hierarchy.programs import Job
from rolewise.data.hierarchy.recipe import Recipe
from rolewise.data.hierarchy.records import Outcome, Record, Reject
from rolewise.data.hierarchy.sources import keys_of_tests, read_source
from rolewise.data.hierarchy.stages import (
    Ask,
    Conflict,
    Decompose,
    Extract,
    Inject,
    Override,
    Regenerate,
    Rules,
    Stage,
    Take,
)
from rolewise.data.hierarchy.store import Store, fingerprint, rows_digest
from rolewise.data.hierarchy.walk import Count, StageEstimate, Walk, sorted_out
from rolewise.data.teacher import Prompt, Reason, Teacher, load_prompt

Say = Callable[[str], None]

_PROGRAMS: Mapping[type[Stage], Callable[[Job], Iterator[Outcome]]] = {
    Take: programs.take,
    Decompose: programs.decompose,
    Regenerate: programs.regenerate,
    Rules: programs.rules,
    Inject: inject,
    Override: override,
    Conflict: programs.conflict,
    Extract: extract,
    Ask: ask,
}


@dataclass(frozen=True, kw_only=True)
class Made:
    """The rows of a recipe, and how they came about."""

    rows: list[dict[str, Any]]
    """`{"messages": [...], "meta": {...}}`, in order."""
    counts: list[Count]
    """Of each source and each stage."""
    rejects: list[dict[str, Any]]
    """`{"step", "id", "reason", "detail", "raw"}` of each row that a source or a stage has left out."""
    unsettled: int
    """Of them, those that the teacher gave no answer to; made again, the recipe asks for these."""
    totals: str
    """What the teacher came to; empty without one."""
    prompts: dict[str, Prompt]
    """The teacher's prompts, by stage."""


class Pipeline:
    """A recipe at work; use it with `with`.

    Args:
        recipe: what to make.
        work: the directory for finished stages and paid answers.
        say: gets a line for each step.
        progress: show a bar while the teacher is asked; by default on a terminal only.

    Raises:
        ValueError: when a prompt cannot be read, or something else lies where answers go.
        BlockingIOError: when another run works in `work`.
        OSError: when it cannot be written.
    """

    def __init__(
        self, recipe: Recipe, work: Path, *, say: Say = lambda line: None, progress: bool | None = None
    ) -> None:
        self.recipe, self._say, self._progress = recipe, say, progress
        self._store = Store(work / "stages")
        self._teacher = None if recipe.teacher is None else Teacher(recipe.teacher, work / "answers.jsonl")
        self._prompts = {
            name: load_prompt(recipe.prompts.get(stage.prompt, stage.prompt))
            for name, stage in recipe.stages.items()
            if recipe.taught(name)
        }
        self._sources: dict[str, list[Record]] = {}
        self._source_counts: list[Count] = []
        self._source_rejects: list[dict[str, Any]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self._store)
            if self._teacher is not None:
                opening.enter_context(self._teacher)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def estimate(self) -> list[StageEstimate]:
        """What each stage will ask of the teacher; makes, and keeps, all rows that need no answer of his.

        Raises:
            FileNotFoundError, ImportError, ValueError: when a source cannot be read, or a stage or the mix wants more
                rows than there can be.
        """
        walk = self._walk(dry=True)
        check_counts(self.recipe, walk.made)
        return walk.estimates

    def make(self) -> Made:
        """The rows. Asks the teacher what is not answered yet; `estimate` first finds what can be wrong before that.

        Raises:
            FileNotFoundError, ImportError, ValueError: when a source cannot be read, a stage or the mix wants more
                rows than there are, or the budget is spent. What is finished or paid for is kept.
            PermissionError, ConnectionError: when the teacher does not let us in, or stays away.
        """
        walk = self._walk(dry=False)
        return Made(
            rows=[record.row for record in mix(self.recipe, walk.made)],
            counts=[*self._source_counts, *walk.counts],
            rejects=[*self._source_rejects, *walk.rejects],
            unsettled=sum(count.rejected.get(Reason.GAVE_UP, 0) for count in walk.counts),
            totals="" if self._teacher is None else str(self._teacher.totals),
            prompts=dict(self._prompts),
        )

    def _walk(self, *, dry: bool) -> Walk:
        self._read_sources()
        walk = Walk(self.recipe, self._sources)
        for name, stage in self.recipe.stages.items():
            job = walk.draw(name, stage)
            if not walk.rough.isdisjoint(stage.source):
                walk.rough.add(name)
            mark = self._mark(job)
            outcomes = None if name in walk.rough else self._store.load(name, mark)
            kept = outcomes is not None
            if outcomes is None:
                outcomes = self._outcomes(job, walk, dry=dry)
                settled = all(one.settled for one in outcomes if isinstance(one, Reject))
                if settled and name not in walk.rough:
                    self._store.keep(name, mark, outcomes)
            count = walk.add(name, job, outcomes, kept=kept)
            if not dry:
                self._say(str(count))
        return walk

    def _outcomes(self, job: Job, walk: Walk, *, dry: bool) -> list[Outcome]:
        if not self.recipe.taught(job.name):
            return list(_PROGRAMS[type(job.stage)](job))
        assert self._teacher is not None
        requests = list(taught.requests(job, self._prompts[job.name]))
        if dry:
            estimate = self._teacher.estimate(requests, self.recipe.price)
            rough = job.name in walk.rough
            walk.estimates.append(StageEstimate(name=job.name, estimate=estimate, approximate=rough))
            walk.rough.add(job.name)
            return taught.stand_ins(job)
        self._say(f"{job.name}: {len(requests):,} requests to {self._teacher.config.model} …")
        outcomes = taught.outcomes(job, self._teacher.answers(requests, progress=self._progress))
        spent = sum(isinstance(one, Reject) and one.reason == Reason.OVER_BUDGET for one in outcomes)
        if spent:
            raise ValueError(
                f"{self.recipe.place}: the budget is spent: {spent:,} of the {len(outcomes):,} rows of {job.name} were "
                "not asked; raise teacher.budget_tokens (--budget-tokens) and run the same again: what was paid for "
                "is kept"
            )
        return outcomes

    def _read_sources(self) -> None:
        if self._sources or not self.recipe.sources:
            return
        tested = keys_of_tests(self.recipe.drop_test)
        seen: set[tuple[str, ...]] = set()
        for name, source in self.recipe.sources.items():
            self._say(f"reading {name} ({', '.join(source.path)}) …")
            outcomes = read_source(name, source, self.recipe.seed, tested, seen)
            self._sources[name], count, rejects = sorted_out(name, "source", len(outcomes), outcomes, kept=False)
            self._source_counts.append(count)
            self._source_rejects += rejects
            self._say(str(count))

    def _mark(self, job: Job) -> str:
        """A hash of all that a stage's rows depend on."""
        parts: list[Any] = [type(job.stage).__name__, asdict(job.stage), job.name, job.seed, rows_digest(job.records)]
        teacher = self.recipe.teacher
        if self.recipe.taught(job.name):
            assert teacher is not None
            parts.append(asdict(self._prompts[job.name]))
            parts += [teacher.model, teacher.temperature, teacher.max_tokens, teacher.structured, teacher.attempts]
        elif job.stage.combines:
            parts.append(rows_digest(job.pool))
        return fingerprint(*parts)
