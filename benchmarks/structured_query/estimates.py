"""The figures of the study's arms, over seeds.

With one seed a figure is that of `rolewise.evaluation.summarise`, and a difference that of `compare`. With several it
is the mean of the seeds' figures, and its interval a bootstrap that draws samples and seeds at once: the test
samples are the same for every seed, so the two are crossed. Of S seeds it draws S - 1, as a mean over that many has
the variance that a mean over all S is estimated to have (Rao and Wu, 1988); S draws would claim too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.structured_query.readings import AS_TRAINED, Result
from rolewise.evaluation.outcomes import CEILING, Run
from rolewise.evaluation.statistics import Estimate, bootstrap_means
from rolewise.evaluation.summary import UTILITIES, Summary, by_data_length, compare, summarise

Seeds = Mapping[int, Summary]
"""One arm's summaries by seed."""

_INFINITE = float("inf")


class Arm(NamedTuple):
    """Where runs of the study stand that differ by seed only."""

    variant: str
    name: str
    run: str = AS_TRAINED

    @property
    def label(self) -> str:
        """For people."""
        return arm_label(self.name)


def arm_label(name: str) -> str:
    """An arm's name as tables and figures show it."""
    return name.replace("-ise", "+ISE")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A figure over seeds."""

    estimate: Estimate
    """The mean over seeds."""
    by_seed: Mapping[int, float]
    p: float | None = None
    """Of a difference, as `compare` has it; None with several seeds."""
    remark: str = ""
    """For the worst of several attacks, which one it is."""

    @property
    def n(self) -> str:
        """For people: samples, and seeds if there are several."""
        seeds = len(self.by_seed)
        return f"{self.estimate.n}" + (f" × {seeds} seeds" if seeds > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Study:
    """The results, looked at by one criterion; what is asked for twice is computed once."""

    results: Sequence[Result]
    criterion: str = "in_response"
    _known: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)

    def arm(self, arm: Arm) -> Seeds:
        """The summaries of the seeds that there are."""
        found = {
            one.setting.seed: run
            for one in self.results
            if (one.setting.variant, one.setting.arm) == arm[:2] and (run := one.run(arm.run)) is not None
        }
        return self._once(arm, lambda: {seed: summarise(run, self.criterion) for seed, run in sorted(found.items())})

    def figures(self, arm: Arm) -> dict[str, Reading]:
        """The arm's figures by the keys of `rolewise.evaluation.compare`; empty without a run."""
        return self._once(("figures", arm), lambda: figures_over_seeds(self.arm(arm)))

    def differences(self, first: Arm, second: Arm) -> dict[str, Reading]:
        """First minus second over the seeds that both have; empty without one."""
        return self._once((first, second), lambda: differences_over_seeds(self.arm(first), self.arm(second)))

    def parts(self, count: int = 3) -> list[tuple[str, Study]]:
        """The study cut by the length of the test samples' data, as `by_data_length` does."""
        cut = {
            (result.name, name): by_data_length(run, count)
            for result in self.results
            for name, run in result.runs.items()
        }
        (names,) = {tuple(name for name, _ in parts) for parts in cut.values()}

        def part(at: int, result: Result) -> Result:
            runs: dict[str, Run] = {name: cut[result.name, name][at][1] for name in result.runs}
            return replace(result, runs=runs, sep=None)

        return [
            (name, Study(results=[part(at, one) for one in self.results], criterion=self.criterion))
            for at, name in enumerate(names)
        ]

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def figures_over_seeds(arm: Seeds) -> dict[str, Reading]:
    """All figures of an arm."""
    figures = {seed: _figures(summary) for seed, summary in arm.items()}
    found: dict[str, Reading] = {}
    for key, only in next(iter(figures.values()), {}).items():
        if not all(key in one for one in figures.values()):
            continue
        by_seed = {seed: one[key].value for seed, one in figures.items()}
        several = len(by_seed) > 1
        estimate = resampled(key, (arm,), lambda value: value, _bounds(key)) if several else only
        found[key] = Reading(estimate=estimate, by_seed=by_seed, remark=_worst_attacks(key, arm))
    return found


def differences_over_seeds(first: Seeds, second: Seeds) -> dict[str, Reading]:
    """First minus second, by figure, over the seeds that both have."""
    seeds = [seed for seed in first if seed in second]
    compared = {seed: compare(first[seed], second[seed]) for seed in seeds}
    found: dict[str, Reading] = {}
    for key, only in next(iter(compared.values()), {}).items():
        if not all(key in one for one in compared.values()):
            continue
        by_seed = {seed: one[key].estimate.value for seed, one in compared.items()}
        if len(seeds) == 1:
            found[key] = Reading(estimate=only.estimate, by_seed=by_seed, p=only.p)
        else:
            low, high = _bounds(key)
            estimate = resampled(key, (first, second), lambda a, b: a - b, (low - high, high - low))
            found[key] = Reading(estimate=estimate, by_seed=by_seed)
    return found


def resampled(
    key: str, arms: Sequence[Seeds], combine: Callable[..., Any], bounds: tuple[float, float], *, seed: int = 0
) -> Estimate:
    """Any function of the arms' figures, with the interval over samples and seeds drawn together.

    Args:
        key: the figure, as `rolewise.evaluation.compare` names it.
        arms: at least one; the seeds that all of them have count, and each draw of seeds is the same for all.
        combine: from one array of draws per arm (the arm's figure, a mean over seeds) to one.
        bounds: the least and the largest value of `combine`.
        seed: of the resampling.
    """
    seeds = sorted(set.intersection(*(set(arm) for arm in arms)))
    tables = [_table(key, arm[one]) for arm in arms for one in seeds]
    ids = sorted(set.intersection(*(set(table) for table in tables)))
    metric = _metric(key)
    drawn = max(len(seeds) - 1, 1)

    def of(means: Any) -> Any:
        """Of means over samples, [..., arms * seeds * columns]."""
        figures = metric(means.reshape(*means.shape[:-1], len(arms), len(seeds), -1))
        if figures.ndim == 2:
            return combine(*figures.mean(-1))
        rng = np.random.default_rng(seed + 1)  # not the draws of the samples
        weights = rng.multinomial(drawn, np.full(len(seeds), 1 / len(seeds)), size=len(figures)) / drawn
        return combine(*np.einsum("das,ds->ad", figures, weights))

    return bootstrap_means([[value for table in tables for value in table[id]] for id in ids], of, bounds, seed=seed)


def success(reading: Reading) -> Reading:
    """Attack success from robust accuracy."""
    robust = reading.estimate
    estimate = Estimate(value=1 - robust.value, low=1 - robust.high, high=1 - robust.low, n=robust.n)
    return replace(reading, estimate=estimate, by_seed={seed: 1 - value for seed, value in reading.by_seed.items()})


def negated(estimate: Estimate) -> Estimate:
    """Second minus first from first minus second."""
    return Estimate(value=-estimate.value, low=-estimate.high, high=-estimate.low, n=estimate.n)


def _figures(summary: Summary) -> dict[str, Estimate]:
    """A summary's figures by the keys that `compare` uses."""
    found: dict[str, Estimate | None] = {**summary.utility, "ceiling": summary.ceiling, **summary.robust}
    for name, group in summary.groups.items():
        found |= {f"{name} {kind}": getattr(group, kind) for kind in ("average", "worst", "union", "separation")}
    return {key: estimate for key, estimate in found.items() if estimate is not None}


def _table(key: str, summary: Summary) -> dict[str, list[float]]:
    """By sample, what `_metric` takes the means of."""
    if key in UTILITIES:
        return {id: [row[key]] for id, row in summary.utilities.items() if key in row}
    if key == "ceiling":
        return {id: [row[CEILING]] for id, row in summary.followed.items() if CEILING in row}
    name, _, kind = key.rpartition(" ")
    attacks = summary.groups[name].attacks if name else (key,)
    needed = (*attacks, CEILING) if kind == "separation" else attacks
    kept = {id: row for id, row in summary.followed.items() if all(name in row for name in needed)}
    robust = {id: [1 - row[attack] for attack in attacks] for id, row in kept.items()}
    if kind == "union":
        return {id: [min(values)] for id, values in robust.items()}
    if kind == "separation":
        return {id: [*values, kept[id][CEILING]] for id, values in robust.items()}
    return robust


def _metric(key: str) -> Callable[[Any], Any]:
    """Of the means of `_table`'s columns, [..., columns] -> [...]."""
    if key.endswith(" worst"):
        return lambda means: means.min(-1)
    if key.endswith(" separation"):
        return lambda means: means[..., -1] + means[..., :-1].mean(-1) - 1
    return lambda means: means.mean(-1)


def _bounds(key: str) -> tuple[float, float]:
    if key == "reference_logprob":
        return -_INFINITE, 0.0
    return (-1.0, 1.0) if key.endswith(" separation") else (0.0, 1.0)


def _worst_attacks(key: str, arm: Seeds) -> str:
    """The worst attack of each seed, each once."""
    name, _, kind = key.rpartition(" ")
    return ", ".join(dict.fromkeys(one.groups[name].worst_attack for one in arm.values())) if kind == "worst" else ""
