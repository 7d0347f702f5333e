"""The benchmark's figures from its runs: a row of the figure or of a table, with a cell for each model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rolewise.evaluation.outcomes import Run
from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.suite_info import Measure
from rolewise.evaluation.summary import Summary, summarise
from rolewise.evaluation.unaskable import refusals_line
from rolewise.reproduce.plan import NO_SYSTEM, PROBES, Part

SHARE = Measure(title="share")


@dataclass(frozen=True, kw_only=True)
class Spoke:
    """One attack or capability: a figure of a part."""

    title: str
    part: str
    """Its key."""
    figure: str
    """A group of attacks, an attack, a measure, or a measure of utility of the part's suite."""


ATTACKS = (
    Spoke(title="indirect, in domain", part="indirect", figure="in_domain"),
    Spoke(title="indirect, out of domain", part="indirect", figure="ood"),
    Spoke(title="direct, in domain", part="direct", figure="in_domain"),
    Spoke(title="direct, out of domain", part="direct", figure="ood"),
    Spoke(title="extraction, ShareGPT", part="extraction-sharegpt", figure="extraction"),
    Spoke(title="extraction, Unnatural Instructions", part="extraction-unnatural", figure="extraction"),
    Spoke(title="harmful, templates 1", part="harmful-1", figure="jailbreak"),
    Spoke(title="harmful, templates 2", part="harmful-2", figure="jailbreak"),
)
"""The eight attacks of the paper's Figure 5; which files the templates come from, the page says."""
CAPABILITIES = (
    Spoke(title="AlpacaEval 1.0 win rate", part="alpaca-eval", figure="win_rate"),
    Spoke(title="MT-Bench, first turn", part="mt-bench", figure="first_turn"),
)
ALSO = (
    Spoke(title="harmful, bare", part="harmful-bare", figure="bare"),
    Spoke(title="harmful, bare", part="harmful-1", figure="bare"),  # where there are templates
    Spoke(title="over-refusal: answered", part="over-refusal", figure="benign"),
    Spoke(title="indirect: ceiling", part="indirect", figure="ceiling"),
    Spoke(title="direct: ceiling", part="direct", figure="ceiling"),
    Spoke(title="extraction, ShareGPT: ceiling", part="extraction-sharegpt", figure="ceiling"),
    Spoke(title="indirect: ROUGE-L without attacks", part="indirect", figure="rouge_l"),
)
"""What is not in the paper's figure, and without which it misleads: a model that follows nothing is robust."""


def _probed(part: str, figure: str, title: str) -> tuple[Spoke, ...]:
    ways = (*PROBES, NO_SYSTEM)
    names = ("system tokens get the user's row", "data tokens get the user's row", "no system message")
    return (
        Spoke(title=f"{title}: as trained", part=part, figure=figure),
        *(
            Spoke(title=f"{title}: {name}", part=f"{part}/{way}", figure=figure)
            for way, name in zip(ways, names, strict=True)
        ),
    )


TABLES: dict[str, tuple[Spoke, ...]] = {
    "Tables 4 and 5: wrong roles, no system message": (
        *_probed("alpaca-eval", "win_rate", "AlpacaEval"),
        *_probed("indirect", "naive", "indirect, naive"),
    ),
    "Table 6: PAIR": (Spoke(title="PAIR, payload in the data", part="pair", figure="adaptive"),),
    "Table 7: MT-Bench": (
        Spoke(title="first turn", part="mt-bench", figure="first_turn"),
        Spoke(title="second turn, the first in view", part="mt-bench", figure="both_turns"),
    ),
    "Table 8: an optimised attack": (
        Spoke(title="GCG, payload in the data (not a jailbreak)", part="gcg", figure="adaptive"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A cell."""

    average: Estimate
    worst: Estimate | None = None
    measure: Measure = SHARE


@dataclass(frozen=True, kw_only=True)
class Readings:
    """All runs that there are, summarised once."""

    models: Sequence[str]
    """By their labels, in the order in which they were named."""
    summaries: Mapping[tuple[str, str], Summary]
    """By model and part."""

    @classmethod
    def of(cls, models: Sequence[str], runs: Mapping[tuple[str, str], Run]) -> Readings:
        """Summarise; runs without an outcome are left out."""
        return cls(models=models, summaries={key: summarise(run) for key, run in runs.items() if run.outcomes})

    def read(self, spoke: Spoke, model: str) -> Reading | None:
        """A model's figure, or None where its run, or the figure in it, is not there."""
        summary = self.summaries.get((model, spoke.part))
        return None if summary is None else _reading(summary, spoke.figure)

    def row(self, spoke: Spoke) -> list[Reading | None]:
        """The figure of each model."""
        return [self.read(spoke, model) for model in self.models]

    def complete(self, spokes: Sequence[Spoke]) -> list[Spoke]:
        """Those that every model has a figure for."""
        return [spoke for spoke in spokes if all(self.row(spoke))]


def _reading(summary: Summary, figure: str) -> Reading | None:
    if group := summary.groups.get(figure):
        return Reading(average=group.average, worst=group.worst if len(group.attacks) > 1 else None)
    if measured := summary.measures.get(figure):
        if measured.average is None:
            return None
        return Reading(average=measured.average, worst=measured.worst, measure=measured.measure)
    single = {**summary.robust, **summary.utility, "ceiling": summary.ceiling}.get(figure)
    return None if single is None else Reading(average=single)


def gaps(
    parts: Sequence[Part],
    fitting: Mapping[str, Sequence[str]],
    readings: Readings,
    runs: Mapping[tuple[str, str], Run],
) -> Iterator[str]:
    """What is missing, a line for each: parts and models that were not run, rows without an answer or a grade.

    Args:
        parts: all of the benchmark.
        fitting: by part, the models that it can be run on.
        readings: of the runs.
        runs: by model and part.
    """
    for part in parts:
        if part.missing:
            yield f"{part.title}: {part.missing}"
            continue
        ran = [model for model in readings.models if (model, part.key) in runs]
        unfit = [model for model in readings.models if model not in fitting[part.key]]
        left = [model for model in readings.models if model not in ran and model not in unfit]
        if unfit:
            why = "no segment table" if part.table_only else "not a model of ours"
            yield f"{part.title}: not for {', '.join(unfit)} ({why})"
        if left:
            yield f"{part.title}: not run for {', '.join(left)}"
        for model in ran:
            run, summary = runs[model, part.key], readings.summaries.get((model, part.key))
            if run.refused:
                yield f"{part.title}, {model}: {refusals_line(run)}"
            if summary is not None and summary.ungraded:
                yield f"{part.title}, {model}: {summary.ungraded} of {len(run.outcomes)} answers are ungraded"
