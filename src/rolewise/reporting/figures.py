"""Figures with matplotlib: for print, for readers who don't see all colours, and the same bytes each time.

A series is told apart by hatch or marker as well as by colour. No label is read as mathematics, so that a model may
be called `$x$`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from math import pi
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rolewise.display import safe_text
from rolewise.reporting.wording import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rolewise.evaluation.statistics import Estimate

INK, GRID = "#1b1f24", "#d0d7de"
"""Text and lines; the page replaces both, so that they show on a dark background as well."""

# Okabe and Ito's colours that show on white and on black, in an order in which neighbours differ in brightness.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")
HATCHES = ("", "///", "..", "xxx", "\\\\\\", "++", "--", "oo")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")

_WIDTH = 5.4  # inches, of the axes: with the labels about a page's width
_SETTINGS: Any = {
    "svg.hashsalt": "rolewise",  # ids of clip paths and hatches would be random otherwise
    "svg.fonttype": "path",  # text looks the same wherever the figure is opened
    "text.parse_math": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "hatch.color": INK,
    "hatch.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

Series = Mapping[str, Sequence["Estimate | None"]]
"""For each run's label, a figure for each row (None where the run has none)."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A finished figure."""

    name: str
    """File name without its suffix."""
    title: str
    description: str
    """What a reader who cannot see the figure needs to know."""
    png: bytes
    svg: bytes


def bars(
    name: str,
    title: str,
    rows: Sequence[tuple[str, str]],
    series: Series,
    *,
    axis: str,
    note: str,
    ratings: bool = False,
) -> Drawing:
    """Horizontal bars with intervals: a group for each row, a bar for each run.

    Args:
        name: the file's name.
        title: the heading.
        rows: for each row its group and its label.
        series: the figures as shares; a missing one is marked as such.
        axis: what the figures are.
        note: where they come from; stands below.
        ratings: whether the figures are ratings from 1 to 10 and not shares.
    """
    count = len(series)
    parts = _plain if ratings else _percent
    thickness = max(0.13, 0.2 - 0.02 * count)  # inches
    gap = 0.16
    height = len(rows) * (count * thickness + gap)

    def draw(figure: Figure) -> None:
        axes = full_axes(figure, height)
        size = thickness / (count * thickness + gap)
        for place, (label, estimates) in enumerate(series.items()):
            shift = (place - (count - 1) / 2) * size
            known = [(at + shift, *parts(one)) for at, one in enumerate(estimates) if one is not None]
            y, value, low, high = ([one[part] for one in known] for part in range(4))
            axes.barh(y, value, size, color=_colour(place), hatch=_hatch(place), edgecolor=INK, linewidth=0.6,
                      label=label)  # fmt: skip
            axes.hlines(y, low, high, color="white", linewidth=2.6)  # so that the interval shows on hatching
            below, above = ([abs(a - b) for a, b in zip(value, end, strict=True)] for end in (low, high))
            axes.errorbar(value, y, xerr=[below, above], color=INK, capsize=2, linewidth=1.0, linestyle="none")
            for at, one in enumerate(estimates):
                if one is None:
                    axes.text(1, at + shift, "no figure", va="center", fontsize=7, style="italic")
        _percent_axis(axes, axis, series)
        if ratings:
            axes.set_xlim(0, 10.2)
        axes.set_yticks(range(len(rows)), [label for _, label in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        _group_names(axes, [group for group, _ in rows])

    described = f"{axis}; one bar for each of {', '.join(series)} and each of {', '.join(label for _, label in rows)}."
    return drawn_as(name, title, described, draw, list(series), note)


def spans(name: str, title: str, ends: Mapping[str, tuple[Estimate, Estimate, Estimate]], *, note: str) -> Drawing:
    """For each run how often it followed the payload in the data and in the instruction, and the space between.

    Args:
        name: the file's name.
        title: the heading.
        ends: for each run attack success, ceiling, and separation.
        note: where they come from; stands below.
    """
    height = max(0.9, 0.42 * len(ends))

    def draw(figure: Figure) -> None:
        axes = full_axes(figure, height)
        for place, (success, ceiling, separation) in enumerate(ends.values()):
            axes.plot([100 * success.value, 100 * ceiling.value], [place, place], color=_colour(place), linewidth=5,
                      solid_capstyle="butt", alpha=0.6)  # fmt: skip
            for estimate, marker, filled, offset in ((success, "o", True, -0.07), (ceiling, "D", False, 0.07)):
                value, low, high = _percent(estimate)
                axes.errorbar(value, place + offset, xerr=[[value - low], [high - value]], color=INK, fmt=marker,
                              markersize=6, capsize=3, linewidth=1.0,
                              markerfacecolor=INK if filled else "white")  # fmt: skip
            # A run that follows the payload more in the data than in the instruction has a negative one.
            axes.text(1.02, place, percent(separation, signed=True), transform=axes.get_yaxis_transform(), va="center")
        axes.text(1.02, -0.75, "separation", transform=axes.get_yaxis_transform(), va="center", fontweight="bold")
        axes.plot([], [], "o", color=INK, label="in the data: attack success (mean)")
        axes.plot([], [], "D", color=INK, markerfacecolor="white", label="in the instruction: ceiling")
        _percent_axis(axes, "payload followed, percent", {})
        axes.set_xlim(-2, 102)  # room for markers at 0
        axes.set_yticks(range(len(ends)), [safe_text(label) for label in ends])
        axes.set_ylim(len(ends) - 0.5, -1.0)

    described = "Separation is the distance from attack success to ceiling: " + "; ".join(
        f"{label} {percent(separation, signed=True)}" for label, (_, _, separation) in ends.items()
    )
    return drawn_as(name, title, described, draw, ["in the data: attack success (mean)"] * 2, note)


def radar(name: str, title: str, spokes: Sequence[str], series: Series, *, axis: str, note: str) -> Drawing:
    """One closed line for each run over at least three spokes.

    Raises:
        ValueError: with fewer than three spokes, or a figure that is missing.
    """
    if len(spokes) < 3 or any(estimate is None for estimates in series.values() for estimate in estimates):
        raise ValueError(f"a radar needs three spokes or more and a figure for each, got {len(spokes)} spokes")
    height = 4.4

    def draw(figure: Figure) -> None:
        axes = full_axes(figure, height, polar=True)
        angles = [2 * pi * at / len(spokes) for at in range(len(spokes))]
        for place, (label, estimates) in enumerate(series.items()):
            values = [_percent(estimate)[0] for estimate in estimates if estimate is not None]
            axes.plot([*angles, angles[0]], [*values, values[0]], color=_colour(place), label=label, linewidth=1.6,
                      linestyle=LINES[place % len(LINES)], marker=MARKERS[place % len(MARKERS)], markersize=4,
                      clip_on=False)  # fmt: skip
        axes.set_ylim(0, 100)
        axes.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100"], fontsize=7)
        axes.set_xticks(angles, list(spokes), fontsize=8)
        for angle, tick in zip(angles, axes.get_xticklabels(), strict=True):
            side = round(angle / pi, 6)
            tick.set_horizontalalignment("left" if side < 0.5 or side > 1.5 else "right")
            if side in (0.5, 1.5):
                tick.set_horizontalalignment("center")

    described = f"{axis}; one line for each of {', '.join(series)}, one spoke for each of {', '.join(spokes)}."
    return drawn_as(name, title, described, draw, list(series), note)


def lines(name: str, title: str, bins: Sequence[str], series: Series, *, axis: str, across: str, note: str) -> Drawing:
    """For each run a line with intervals over ordered bins."""
    height = 2.9

    def draw(figure: Figure) -> None:
        axes = full_axes(figure, height)
        for place, (label, estimates) in enumerate(series.items()):
            shift = (place - (len(series) - 1) / 2) * min(0.12, 0.6 / len(series))  # intervals would hide each other
            known = [(at + shift, *_percent(one)) for at, one in enumerate(estimates) if one is not None]
            below = [value - low for _, value, low, _ in known]
            above = [high - value for _, value, _, high in known]
            axes.errorbar([x for x, *_ in known], [value for _, value, *_ in known], yerr=[below, above],
                          color=_colour(place), label=label, linewidth=1.6, capsize=3,
                          linestyle=LINES[place % len(LINES)], marker=MARKERS[place % len(MARKERS)],
                          markersize=5)  # fmt: skip
        lows = [100 * one.low for estimates in series.values() for one in estimates if one is not None]
        axes.set_ylim(min(-2, *(low - 4 for low in lows)), 102)
        axes.set_ylabel(axis)
        axes.set_xlabel(across)
        axes.set_xticks(range(len(bins)), list(bins))
        axes.set_xlim(-0.5, len(bins) - 0.5)
        axes.grid(axis="y")

    described = f"{axis} by {across}; one line for each of {', '.join(series)} over {', '.join(bins)}."
    return drawn_as(name, title, described, draw, list(series), note)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _hatch(place: int) -> str:
    return HATCHES[place % len(HATCHES)]


def _percent(estimate: Estimate) -> tuple[float, float, float]:
    # The interval of a bootstrap need not hold the figure itself to the last bit, and no bar has a negative length.
    value, low, high = 100 * estimate.value, 100 * estimate.low, 100 * estimate.high
    return value, min(low, value), max(high, value)


def _plain(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, min(estimate.low, estimate.value), max(estimate.high, estimate.value)


def _percent_axis(axes: Axes, label: str, series: Series) -> None:
    lows = [estimate.low for estimates in series.values() for estimate in estimates if estimate is not None]
    axes.set_xlim(-102 if min(lows, default=0) < 0 else 0, 102)
    axes.set_xlabel(label)
    axes.grid(axis="x")


def _group_names(axes: Axes, groups: Sequence[str]) -> None:
    """Name each run of rows of one group at the right, with a line between two."""
    at = 0
    for group, members in groupby(groups):
        size = len(list(members))
        turned = 270 if size > 1 else 0  # beside a single row a turned name would reach into the next group
        axes.text(1.01, at + (size - 1) / 2, group, transform=axes.get_yaxis_transform(), va="center", rotation=turned)
        if at:
            axes.axhline(at - 0.5, color=INK, linewidth=0.6, linestyle=":")
        at += size


def full_axes(figure: Figure, height: float, *, polar: bool = False) -> Any:
    """Axes that fill the figure: what stands around them is added when it is saved."""
    figure.set_size_inches(_WIDTH, height)
    return figure.add_axes((0, 0, 1, 1), polar=polar)


@contextmanager
def _style() -> Generator[None]:
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a user's own matplotlibrc must not change the bytes
        matplotlib.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a label in another script: boxes will do
        yield


def drawn_as(
    name: str, title: str, description: str, draw: Callable[[Figure], None], labels: Sequence[str], note: str
) -> Drawing:
    """Draw, put heading, legend and note around, and save both ways."""
    with _style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure()
        canvas = FigureCanvasAgg(figure)
        draw(figure)
        _surround(figure, canvas.get_renderer(), title, labels, note)
        png, svg = BytesIO(), BytesIO()
        common: dict[str, Any] = {"facecolor": "white", "bbox_inches": "tight", "pad_inches": 0.12}
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None}, **common)
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, **common)
    return Drawing(name=name, title=title, description=description, png=png.getvalue(), svg=svg.getvalue())


def _surround(figure: Figure, renderer: Any, title: str, labels: Sequence[str], note: str) -> None:
    """From the top: heading, legend, axes, note; each is measured, as labels may be long."""
    axes = figure.axes[0]
    fraction = figure.transFigure.inverted()
    inch = 1 / figure.get_figheight()  # as fractions, lengths hold whatever the resolution of the file
    box = axes.get_tightbbox(renderer)
    assert box is not None
    (left, bottom), (_, top) = fraction.transform(box.get_points())
    widest = max((len(label) for label in labels), default=1)
    legend = axes.legend(loc="lower left", bbox_to_anchor=(left, top + 0.08 * inch), bbox_transform=figure.transFigure,
                         ncols=max(1, min(4, 90 // (widest + 8))), borderaxespad=0, handlelength=2.6)  # fmt: skip
    top = fraction.transform(legend.get_window_extent(renderer).get_points())[1][1]
    figure.text(left, top + 0.1 * inch, safe_text(title), va="bottom", fontweight="bold", fontsize=11)
    figure.text(left, bottom - 0.12 * inch, fill(safe_text(note), 130), va="top", fontsize=7)
