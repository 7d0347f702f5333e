"""Curves over layers, a panel for each role or probe and a line for each model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rolewise.display import safe_text
from rolewise.inspection.results import ACCURACY, LIFT_REST, OFFSET, Inspection, Kind, Measurement
from rolewise.inspection.tables import SIGNALS
from rolewise.reporting.figures import COLOURS, LINES, Drawing, drawn_as, full_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 1.9
"""Height of a row of panels, in inches."""
_COLUMNS = 2
_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def drawings(inspections: Sequence[Inspection]) -> list[Drawing]:
    """The figures: attention under each condition, accuracy and offset of the probes."""
    note = _note(inspections)
    found: list[Drawing] = []
    for condition in _conditions(inspections, "attention"):
        panels = _panels(inspections, "attention", LIFT_REST, condition=condition)
        found.append(
            _curves(
                f"attention-{condition}",
                f"Attention from the answer, {condition}",
                panels,
                axis="lift (1 = even), first token left out",
                line=1.0,
                note=note,
                ratios=True,
            )
        )
    for measure, title, axis, line, factor in (
        (ACCURACY, "A linear probe tells user from data", "accuracy, percent", 50.0, 100.0),
        (OFFSET, "Offset between user and data", "offset over the states' length", None, 1.0),
    ):
        panels = _panels(inspections, "probe", measure)
        if panels:
            found.append(_curves(f"probe-{measure}", title, panels, axis=axis, line=line, note=note, factor=factor))
    return found


_Panels = dict[str, dict[str, Measurement]]
"""By the panel's heading, and the model's label."""


def _conditions(inspections: Sequence[Inspection], kind: Kind) -> list[str]:
    return list(dict.fromkeys(m.condition for one in inspections for m in one.measurements if m.kind == kind))


def _panels(inspections: Sequence[Inspection], kind: Kind, measure: str, condition: str | None = None) -> _Panels:
    panels: _Panels = {}
    for one in inspections:
        for m in one.measurements:
            if m.kind == kind and m.measure == measure and condition in (None, m.condition):
                heading = m.role if kind == "attention" else SIGNALS[m.condition]
                panels.setdefault(heading, {})[one.label] = m
    return panels


def _note(inspections: Sequence[Inspection]) -> str:
    kinds = {m.kind for one in inspections for m in one.measurements}
    over = [unit for kind, unit in (("attention", "samples"), ("probe", "pairs")) if kind in kinds]
    return (
        f"{safe_text(inspections[0].counted())}, seed {inspections[0].settings['seed']}; bands are 95 % intervals over "
        f"{', or over '.join(over)}."
    )


def _curves(
    name: str,
    title: str,
    panels: _Panels,
    *,
    axis: str,
    line: float | None,
    note: str,
    factor: float = 1.0,
    ratios: bool = False,
) -> Drawing:
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    rows = math.ceil(len(panels) / _COLUMNS)

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        around = full_axes(figure, rows * _PANEL)
        around.set_xticks([])
        around.set_yticks([])
        for spine in around.spines.values():
            spine.set_visible(False)
        around.set_xlabel("layer", labelpad=4)
        around.set_ylabel(axis, labelpad=30)
        for place, label in enumerate(labels):
            around.plot([], [], color=_colour(place), linestyle=_line(place), label=safe_text(label))
        shared, limits = None, _limits(panels)
        for number, (heading, lines) in enumerate(panels.items()):
            row, column = divmod(number, _COLUMNS)
            box = (column * 0.53, 1 - (row + 0.82) / rows, 0.47, 0.7 / rows)  # room for ticks below, a heading above
            axes: Any = figure.add_axes(box, sharex=shared, sharey=shared)
            shared = shared or axes
            axes.set_title(safe_text(heading), fontsize=9, loc="left", pad=3)
            _plot(axes, lines, labels, factor)
            if line is not None:
                axes.axhline(line, color="#8c8c8c", linewidth=0.8, linestyle=":")
            if ratios:  # twice as much is as far from even as half as much
                axes.set_yscale("log", nonpositive="clip")
                axes.set_yticks(_RATIOS, [f"{ratio:g}" for ratio in _RATIOS])
                axes.minorticks_off()
                axes.set_ylim(*limits)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # no layer is number 2.5
            axes.grid(axis="y")
            axes.tick_params(labelsize=7)

    described = f"{axis} by layer; a panel for each of {', '.join(panels)}, a line for each of {', '.join(labels)}."
    return drawn_as(name, title, described, draw, labels, note)


def _plot(axes: Any, lines: Mapping[str, Measurement], labels: Sequence[str], factor: float) -> None:
    for label, measurement in lines.items():
        place = labels.index(label)
        known = [(layer, one) for layer in measurement.layers if (one := measurement.estimate(layer)) is not None]
        x = [layer for layer, _ in known]

        def parts(part: Callable[[Any], float], known: Sequence[tuple[int, Any]] = known) -> list[float]:
            return [factor * part(one) for _, one in known]

        axes.fill_between(x, parts(lambda one: one.low), parts(lambda one: one.high), color=_colour(place), alpha=0.2,
                          linewidth=0)  # fmt: skip
        axes.plot(x, parts(lambda one: one.value), color=_colour(place), linestyle=_line(place), linewidth=1.4,
                  marker="o", markersize=1.8)  # fmt: skip


def _limits(panels: _Panels) -> tuple[float, float]:
    """Of a logarithmic axis, so that it shows the intervals whole; one that goes down to 0 runs out of it."""
    ends = [
        end
        for lines in panels.values()
        for measurement in lines.values()
        for layer in measurement.layers
        if (one := measurement.estimate(layer)) is not None
        for end in (one.low, one.value, one.high)
        if end > 0
    ]
    return max(min(ends, default=1.0) * 0.8, _RATIOS[0] / 2), max(max(ends, default=1.0) * 1.25, 2.0)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _line(place: int) -> str:
    return LINES[place % len(LINES)]
