"""Success over budget: how many samples had fallen when so much was spent."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rolewise.adaptive.trajectory import Trajectory
from rolewise.evaluation.outcomes import Run
from rolewise.evaluation.statistics import Estimate, wilson


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The share of samples that had fallen by a budget."""

    budget: int
    successes: int
    share: Estimate
    """With its Wilson interval."""


def trajectories_of(run: Run) -> dict[str, list[Trajectory]]:
    """By method, the trajectories that a run of the suite `adaptive` recorded, in the order of its samples."""
    found: dict[str, list[Trajectory]] = {}
    for outcome in run.outcomes:
        if stored := outcome.meta.get("trajectory"):
            trajectory = Trajectory.from_dict(stored)
            found.setdefault(trajectory.method, []).append(trajectory)
    return found


def success_over_budget(
    trajectories: Iterable[Trajectory], budgets: Sequence[int] | None = None, *, confidence: float = 0.95
) -> list[CurvePoint]:
    """The share of samples whose first success cost no more than each budget.

    Points of one curve are of the same samples: the curve never falls, and its intervals are not independent.

    Args:
        trajectories: of different samples, by one method with one budget and criterion.
        budgets: where to read the curve; by default at every cost at which some sample was tried, and at the budget.
        confidence: of the intervals.

    Raises:
        ValueError: when there are none, they differ in method, unit, budget or criterion, or a budget is beyond
            what was spent (nothing is known there).
    """
    listed = list(trajectories)
    if not listed:
        raise ValueError("there are no trajectories; run the suite adaptive first")
    kinds = {(one.method, one.unit, one.budget, one.criterion) for one in listed}
    if len(kinds) > 1:
        raise ValueError(f"trajectories of different kinds have no common curve: {sorted(kinds)}; give one kind")
    most = listed[0].budget
    if budgets is None:
        budgets = sorted({attempt.cost for one in listed for attempt in one.attempts} | {most})
    if beyond := [budget for budget in budgets if budget > most]:
        raise ValueError(f"budget={beyond[0]} is beyond the {most} {listed[0].unit} that were allowed")
    firsts = [one.first_success for one in listed]
    points: list[CurvePoint] = []
    for budget in sorted(budgets):
        successes = sum(first is not None and first <= budget for first in firsts)
        share = wilson(successes, len(firsts), confidence)
        points.append(CurvePoint(budget=budget, successes=successes, share=share))
    return points


COLUMNS = ("series", "unit", "budget", "successes", "n", "share", "low", "high")
"""Of the CSV file."""


def write_curves(path: str | os.PathLike[str], curves: Mapping[str, Sequence[CurvePoint]], *, unit: str) -> None:
    """Write curves as CSV, a line for each point (see `COLUMNS`); shares are between 0 and 1."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, points in curves.items():
        for point in points:
            share = point.share
            ends = (f"{value:.6f}" for value in (share.value, share.low, share.high))
            writer.writerow([name, unit, point.budget, point.successes, share.n, *ends])
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text.getvalue(), encoding="utf-8")
