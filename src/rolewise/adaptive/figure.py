"""The figure of success over budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rolewise.adaptive.curves import CurvePoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rolewise.reporting.figures import Drawing


def success_figure(
    name: str, title: str, curves: Mapping[str, Sequence[CurvePoint]], *, unit: str, note: str
) -> Drawing:
    """Steps of attack success over budget, one for each series, with Wilson intervals as a band.

    Args:
        name: the file's name.
        title: the heading.
        curves: for each series (a model, or a method) its points, from `success_over_budget`.
        unit: what the budget counts.
        note: where the numbers come from; stands below.

    Raises:
        ValueError: when there is nothing to draw.
    """
    from rolewise.reporting.figures import COLOURS, LINES, MARKERS, drawn_as, full_axes

    if not curves or not all(curves.values()):
        raise ValueError("a figure of success over budget needs a curve with at least one point for each series")

    def draw(figure: Figure) -> None:
        axes = full_axes(figure, 2.9)
        for place, (label, points) in enumerate(curves.items()):
            x = [point.budget for point in points]
            value, low, high = (
                [100 * getattr(point.share, end) for point in points] for end in ("value", "low", "high")
            )
            colour = COLOURS[place % len(COLOURS)]
            axes.fill_between(x, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
            axes.step(x, value, where="post", color=colour, label=label, linewidth=1.6,
                      linestyle=LINES[place % len(LINES)], marker=MARKERS[place % len(MARKERS)],
                      markersize=4, markevery=max(1, len(x) // 12), clip_on=False)  # fmt: skip
        axes.set_ylim(0, 102)
        axes.set_xlim(left=0)
        axes.set_ylabel("samples that have fallen, percent")
        axes.set_xlabel(f"budget, {unit}")
        axes.grid(axis="y")

    ends = "; ".join(f"{label} {points[-1].share.percent()} %" for label, points in curves.items())
    described = f"Attack success over {unit}, with Wilson intervals. At the end of the budget: {ends}."
    return drawn_as(name, title, described, draw, list(curves), note)
