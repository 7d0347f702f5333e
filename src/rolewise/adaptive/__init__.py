"""Attacks that adapt to the model they attack: GCG, PAIR and best-of-N, and success over their budget.

    from rolewise.adaptive import success_over_budget, trajectories_of
    from rolewise.evaluation import read_runs

    (run,) = read_runs(["logs"])
    curve = success_over_budget(trajectories_of(run)["best_of_n"])

`rolewise.adaptive.gcg` needs torch and a model of ours; the other two ask any model by a function that they are given.
An optimised attack breaks nearly every model, given enough budget: read the curve, and where it begins.
"""

from rolewise.adaptive.best_of_n import best_of_n
from rolewise.adaptive.curves import CurvePoint, success_over_budget, trajectories_of, write_curves
from rolewise.adaptive.figure import success_figure
from rolewise.adaptive.pair import pair
from rolewise.adaptive.trajectory import Answered, Attacked, Attempt, Trajectory

__all__ = [
    "Answered",
    "Attacked",
    "Attempt",
    "CurvePoint",
    "Trajectory",
    "best_of_n",
    "pair",
    "success_figure",
    "success_over_budget",
    "trajectories_of",
    "write_curves",
]
