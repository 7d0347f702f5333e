"""Figures with their uncertainty: Wilson intervals, bootstrap over samples, paired tests.

A share has a Wilson interval. What combines several conditions of a sample (an average, a minimum, a difference)
is resampled over samples, everything that is known of a sample together: a percentile bootstrap, paired by
construction. Nothing here knows what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import NormalDist
from typing import Any, TypeVar

BOOTSTRAP_DRAWS = 2000

_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure between `low` and `high` with the stated confidence, from `n` samples."""

    value: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval is on one side of zero, as a difference that can be told has it."""
        return self.low > 0 or self.high < 0

    def percent(self, signed: bool = False) -> str:
        """For people: `85 [71, 93]`, in percent."""
        sign = "+" if signed else ""
        value, low, high = (round(100 * part) for part in (self.value, self.low, self.high))
        return f"{value:{sign}d} [{low:{sign}d}, {high:{sign}d}]"


def wilson(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """A share with its Wilson score interval.

    Raises:
        ValueError: unless 0 <= successes <= n, n > 0 and 0 < confidence < 1.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"a share needs 0 <= successes <= n and n > 0, got {successes} of {n}")
    z = _z(confidence)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    # The end at 0 or 1 is exact in theory; say it exactly in floating point, too.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Estimate(value=share, low=low, high=high, n=n)


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} must lie between 0 and 1")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def bootstrap(
    rows: Sequence[_Row],
    metric: Callable[[Sequence[_Row]], float],
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> Estimate:
    """The percentile interval of any `metric` over resampled rows; for means, `bootstrap_means` is much faster.

    Rows that all agree would give an interval of no width. Then the share of rows that could differ unseen is
    taken from Wilson's bound for 0 of n, and these may lie anywhere within the metric's bounds; for a share this is
    Wilson's interval itself.

    Raises:
        ValueError: when there are no rows, `draws` < 1, or `confidence` is not between 0 and 1.
    """
    _check(len(rows), draws)
    n = len(rows)
    rng = Random(f"rolewise-bootstrap:{seed}")
    drawn = [metric([rows[rng.randrange(n)] for _ in range(n)]) for _ in range(draws)]
    return _interval(metric(rows), drawn, bounds, n, confidence)


def bootstrap_means(
    table: Any,
    metric: Callable[[Any], Any],
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    confidence: float = 0.95,
    seed: int = 0,
    draws: int = BOOTSTRAP_DRAWS,
) -> Estimate:
    """As `bootstrap`, for a metric of the columns' means, all draws at once.

    Args:
        table: numbers, [samples, columns]: what is known of each sample.
        metric: a function of means, [..., columns] -> [...], such as `lambda means: means.min(-1)`.
        bounds: the least and the largest value that the metric can take.
        confidence: of the interval.
        seed: of the resampling.
        draws: how often to resample.

    Raises:
        ValueError: when there are no rows, `draws` < 1, or `confidence` is not between 0 and 1.
    """
    import numpy as np

    values = np.asarray(table, dtype=np.float64)
    n = len(values)
    _check(n, draws)
    drawn = metric(_counts(n, seed, draws) @ values / n)
    return _interval(float(metric(values.mean(0))), [float(one) for one in drawn], bounds, n, confidence)


@lru_cache(maxsize=2)  # a report asks for the same draws hundreds of times, one after the other
def _counts(n: int, seed: int, draws: int) -> Any:
    """How often each of `n` rows is drawn, [draws, n]."""
    import numpy as np

    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64)


def _check(n: int, draws: int) -> None:
    if n < 1:
        raise ValueError("there are no rows to resample; give at least one")
    if draws < 1:
        raise ValueError(f"draws={draws} must be at least 1")


def _interval(value: float, drawn: list[float], bounds: tuple[float, float], n: int, confidence: float) -> Estimate:
    unseen = wilson(0, n, confidence).high  # checks the confidence, too
    drawn.sort()
    draws, tail = len(drawn), (1 - confidence) / 2
    low, high = drawn[int(tail * draws)], drawn[min(draws - 1, math.ceil((1 - tail) * draws) - 1)]
    if high - low < 1e-12 and all(math.isfinite(bound) for bound in bounds):
        low, high = value - unseen * (value - bounds[0]), value + unseen * (bounds[1] - value)
    return Estimate(value=value, low=low, high=high, n=n)


def mcnemar(first_only: int, second_only: int) -> float:
    """The exact two-sided p value that two paired shares are the same.

    Args:
        first_only: samples where only the first succeeded.
        second_only: samples where only the second did.

    Raises:
        ValueError: when a count is negative.
    """
    if first_only < 0 or second_only < 0:
        raise ValueError(f"counts must not be negative, got {first_only} and {second_only}")
    n, least = first_only + second_only, min(first_only, second_only)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / 2**n)


def holm(ps: Sequence[float]) -> list[float]:
    """P values corrected for their number by Holm's step-down procedure, in the same order.

    Rejecting those of at most alpha keeps the chance of any false rejection at alpha, however the tests depend on
    each other (Holm, 1979).
    """
    corrected = [0.0] * len(ps)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = least
    return corrected


def sign_flip(differences: Sequence[float], *, seed: int = 0, draws: int = 10_000) -> float:
    """The two-sided p value that paired differences have mean zero, by flipping their signs at random.

    Raises:
        ValueError: when there are no differences, or `draws` < 1.
    """
    import numpy as np

    _check(len(differences), draws)
    values = np.asarray([one for one in differences if one != 0.0], dtype=np.float64)
    if not len(values):
        return 1.0
    signs = np.random.default_rng(seed).integers(0, 2, size=(draws, len(values))) * 2 - 1
    extreme = np.abs(signs @ values) >= abs(values.sum()) - 1e-9
    return float((1 + extreme.sum()) / (1 + draws))
