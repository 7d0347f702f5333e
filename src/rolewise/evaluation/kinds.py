"""Figures of suites whose samples are each of one kind: a harmful request has a category, a question a subject.

Other suites ask each sample under several conditions; here the samples themselves fall into groups. For each *measure*
(how a request was asked: bare, in a jailbreak; or what a grader measured) there is

- the *average* over all samples, each counting once;
- each kind's own average, and the *worst* of them.

More is better in every measure. The worst is resampled within each kind, so that no kind is lost in a draw. A sample
that a grader gave no verdict on is in no average; `Measured.ungraded` says how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rolewise.evaluation.outcomes import Outcome, Run
from rolewise.evaluation.statistics import Estimate, bootstrap_means, wilson
from rolewise.evaluation.suite_info import Measure, SuiteInfo, chosen_criterion, suite_info

Scores = dict[str, dict[str, float]]
"""By sample, then by measure."""


_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The figures of one measure."""

    measure: Measure
    average: Estimate | None
    """Over all samples; None when none has a verdict."""
    kinds: dict[str, Estimate]
    """By kind, in the order of the file."""
    worst: Estimate | None
    """Of the kinds; None when there are not two."""
    worst_kind: str | None
    ungraded: int
    """Answers that a grader gave no verdict on."""


def shared_criterion(runs: Sequence[Run], criterion: str | None = None) -> str:
    """The criterion itself, or, where none is given, the first of the suite's by which all of the runs were judged.

    Where there is no such criterion, the first by which any was.

    Raises:
        ValueError: when the suite has no such criterion.
    """
    judged = [run.judged for run in runs]
    suite = runs[0].suite
    in_all = set(suite_info(suite).criteria).intersection(*judged) if judged else set[str]()
    return chosen_criterion(suite, criterion, in_all or {name for one in judged for name in one})


def measures_of(info: SuiteInfo, outcomes: Sequence[Outcome]) -> dict[str, Measure]:
    """The measures that outcomes may have a score by: the suite's own, or how they were asked."""
    if info.measures:
        had = {name for one in outcomes for part in (one.grades, one.ungraded) for name in part}
        return {name: measure for name, measure in info.measures.items() if name in had}
    conditions = list(dict.fromkeys(one.condition for one in outcomes))
    if len(conditions) == 1:
        return {conditions[0]: Measure(title=info.held)}
    return {name: Measure(title=f"{info.held}, {name}") for name in conditions}


def readings(info: SuiteInfo, outcome: Outcome, criterion: str) -> Iterator[tuple[str, float | None]]:
    """An outcome's score by each measure that it was judged by; None where a grader gave no verdict."""
    if info.measures:
        yield from outcome.grades.items()
        yield from ((name, None) for name in outcome.ungraded)
    elif criterion in outcome.verdicts:
        yield outcome.condition, 1.0 - outcome.followed(criterion)
    elif criterion in outcome.ungraded:
        yield outcome.condition, None


def score_kinds(run: Run, criterion: str) -> tuple[Scores, dict[str, str], dict[str, int]]:
    """Each sample's scores, epochs averaged; each sample's kind where it has one; and by measure how many lack one."""
    info = suite_info(run.suite)
    found: dict[str, dict[str, list[float]]] = {}
    kinds: dict[str, str] = {}
    ungraded: dict[str, int] = {}
    for outcome in sorted(run.outcomes, key=_by_number):
        row = found.setdefault(outcome.id, {})
        if outcome.kind is not None:
            kinds[outcome.id] = outcome.kind
        for name, score in readings(info, outcome, criterion):
            if score is None:
                ungraded[name] = ungraded.get(name, 0) + 1
            else:
                row.setdefault(name, []).append(score)
    scores = {id: {name: sum(some) / len(some) for name, some in row.items()} for id, row in found.items()}
    return scores, kinds, ungraded


def _by_number(outcome: Outcome) -> str:
    """Sorts row-2 before row-10: samples stand in their file's order, as logs do not, and so do kinds."""
    return re.sub(r"\d+", lambda found: found.group().zfill(12), outcome.id)


def measure_kinds(run: Run, criterion: str, **options: Any) -> tuple[Scores, dict[str, str], dict[str, Measured]]:
    """Each sample's scores, each sample's kind, and the figures by measure.

    Args:
        run: of a suite that goes by kind.
        criterion: one of the suite's.
        **options: `confidence`, `seed` and `draws`.
    """
    scores, kinds, ungraded = score_kinds(run, criterion)
    found: dict[str, Measured] = {}
    for name, measure in measures_of(suite_info(run.suite), run.outcomes).items():
        having = {id: row[name] for id, row in scores.items() if name in row}
        if not having and name not in ungraded:
            continue  # nobody was asked to judge it
        parts = by_kind(having, kinds)
        worst = min(parts, key=lambda kind: sum(parts[kind]) / len(parts[kind])) if len(parts) > 1 else None
        found[name] = Measured(
            measure=measure,
            average=_average(list(having.values()), measure, options) if having else None,
            kinds={kind: _average(values, measure, options) for kind, values in parts.items()},
            worst=None
            if worst is None
            else bootstrap_kinds(
                [[[value] for value in values] for values in parts.values()],
                lambda means: means[..., 0].min(-1),
                (measure.low, measure.high),
                **options,
            ),
            worst_kind=worst,
            ungraded=ungraded.get(name, 0),
        )
    return scores, kinds, found


def by_kind(values: Mapping[str, float], kinds: Mapping[str, str]) -> dict[str, list[float]]:
    """The values of each kind's samples; samples without a kind are left out."""
    found: dict[str, list[float]] = {}
    for id, value in values.items():
        if id in kinds:
            found.setdefault(kinds[id], []).append(value)
    return found


def spread(items: Sequence[_Item], kind_of: Callable[[_Item], str], limit: int | None) -> list[_Item]:
    """So many of the items, of each kind as many as of the others, in their order; fewer are among more.

    Files are sorted by kind: their first rows would all be of one.

    Args:
        items: what to choose from.
        kind_of: each one's kind.
        limit: how many; None for all.
    """
    seen: dict[str, int] = {}
    ranks: list[tuple[int, int]] = []
    for place, item in enumerate(items):
        kind = kind_of(item)
        seen[kind] = seen.get(kind, 0) + 1
        ranks.append((seen[kind], place))
    return [items[place] for _, place in sorted(sorted(ranks)[:limit], key=lambda rank: rank[1])]


def _average(values: Sequence[float], measure: Measure, options: Any) -> Estimate:
    if measure.is_share and all(value in (0.0, 1.0) for value in values):
        return wilson(round(sum(values)), len(values), options["confidence"])
    return bootstrap_means(
        [[value] for value in values], lambda means: means[..., 0], (measure.low, measure.high), **options
    )


def worst_difference(
    pairs: Mapping[str, tuple[float, float]], kinds: Mapping[str, str], measure: Measure, **options: Any
) -> Estimate | None:
    """The first's worst kind minus the second's, on the same samples; None when there are not two kinds.

    Args:
        pairs: by sample, the score of the first and of the second.
        kinds: by sample.
        measure: what the scores are.
        **options: `confidence`, `seed` and `draws`.
    """
    tables: dict[str, list[tuple[float, float]]] = {}
    for id, pair in pairs.items():
        if id in kinds:
            tables.setdefault(kinds[id], []).append(pair)
    if len(tables) < 2:
        return None
    width = measure.high - measure.low
    return bootstrap_kinds(
        list(tables.values()),
        lambda means: means[..., 0].min(-1) - means[..., 1].min(-1),
        (-width, width),
        **options,
    )


def bootstrap_kinds(
    tables: Sequence[Sequence[Sequence[float]]],
    metric: Callable[[Any], Any],
    bounds: tuple[float, float],
    *,
    confidence: float,
    seed: int,
    draws: int,
) -> Estimate:
    """The percentile interval of a metric of the kinds' means, resampled within each kind.

    Where samples of a kind all agree, no draw of it differs. When for that reason none of the draws differs, the share
    of samples that could differ unseen is taken from Wilson's bound for 0 of the smallest kind's, as
    `rolewise.evaluation.bootstrap` does it.

    Args:
        tables: for each kind what is known of its samples, [samples, columns].
        metric: a function of means, [..., kinds, columns] -> [...].
        bounds: the least and the largest value that the metric can take.
        confidence: of the interval.
        seed: of the resampling.
        draws: how often to resample.

    Raises:
        ValueError: when there are no kinds, or one has no samples.
    """
    import numpy as np

    if not tables or not all(tables):
        raise ValueError("every kind needs at least one sample, and there must be a kind")
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    generator = np.random.default_rng(seed)
    drawn_means: list[Any] = []
    for one in arrays:
        size = len(one)
        counts = generator.multinomial(size, np.full(size, 1 / size), size=draws)
        drawn_means.append(counts @ one / size)
    value = float(metric(np.stack([one.mean(0) for one in arrays])))
    drawn = np.asarray(metric(np.stack(drawn_means, axis=1)))
    tail = (1 - confidence) / 2
    low, high = (float(one) for one in np.quantile(drawn, [tail, 1 - tail], method="closest_observation"))
    if high - low < 1e-12:
        unseen = wilson(0, min(map(len, arrays)), confidence).high
        low, high = value - unseen * (value - bounds[0]), value + unseen * (bounds[1] - value)
    return Estimate(value=value, low=low, high=high, n=sum(map(len, arrays)))
