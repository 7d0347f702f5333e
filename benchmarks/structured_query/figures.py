"""The study's figures: attack success by attack, separation by length of the data, ceiling against robustness.

The same results give the same bytes. An arm has the lab's colour; arms with a table are solid, the others hatched,
or drawn with dashes and hollow marks. Sized so that they can be read at 700 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lab.figures import STYLES
from benchmarks.structured_query.estimates import Arm, Reading, Study, arm_label, success
from benchmarks.structured_query.targets import VARIANTS
from rolewise.attacks import IN_DOMAIN_ATTACKS

ARMS = ("text", "text-ise", "delimiter", "delimiter-ise")
MARKERS = {"clean": "o", "adversarial": "s", "twins": "^"}

_WIDTH = 7.0  # inches, which 700 pixels show as 100 dots each
_INK = "#1b1f24"
_SETTINGS: Any = {
    "svg.hashsalt": "rolewise",  # so that the same results give the same file
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "hatch.linewidth": 1.0,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw_all(study: Study, folder: Path) -> list[str]:
    """Draw what there are results for, as SVG and PNG; the names without suffix."""
    drawn = [name for variant in VARIANTS if (name := draw_attacks(study, variant, folder))]
    return [*drawn, *filter(None, (draw_lengths(study, folder), draw_ceilings(study, folder)))]


def draw_attacks(study: Study, variant: str, folder: Path) -> str | None:
    """Bars with intervals: a group for each attack, a bar for each arm."""
    arms = _arms(study, variant)
    if not arms:
        return None
    figures = {arm: study.figures(arm) for arm in arms}
    attacks = list(dict.fromkeys(name for arm in arms for one in study.arm(arm).values() for name in one.robust))
    size = 0.8 / len(arms)

    def draw(figure: Any) -> None:
        plot = figure.subplots()
        for place, arm in enumerate(arms):
            colour, line, _ = STYLES[arm.label]
            readings = [success(figures[arm][name]) for name in attacks]
            at = [row + (place - (len(arms) - 1) / 2) * size for row in range(len(attacks))]
            values = [100 * one.estimate.value for one in readings]
            solid = line == "-"
            plot.barh(
                at, values, 0.9 * size, color=colour if solid else "white", edgecolor=colour,
                hatch="" if solid else "/////", linewidth=0.8, label=arm.label,
            )  # fmt: skip
            ends = [[100 * one.estimate.low for one in readings], [100 * one.estimate.high for one in readings]]
            plot.hlines(at, *ends, color="white", linewidth=2.2)  # so that the interval shows on the bar
            plot.errorbar(values, at, xerr=_spread(readings), color=_INK, capsize=1.5, linewidth=0.8, linestyle="none")
        border = sum(name in IN_DOMAIN_ATTACKS for name in attacks) - 0.5
        if 0 < border < len(attacks) - 1:
            plot.axhline(border, color=_INK, linewidth=0.8, linestyle=":")
        plot.set_yticks(range(len(attacks)), attacks)
        plot.set_ylim(len(attacks) - 0.5, -0.5)
        plot.set_xlim(0, 101)
        plot.set_xlabel(f"attack success, % ({_samples(study)})")
        plot.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside upper center", ncols=len(arms))

    height = 1.0 + len(attacks) * (0.1 + 0.09 * len(arms))
    return _save(f"structured-query-attacks-{variant}", draw, height, folder)


def draw_lengths(study: Study, folder: Path) -> str | None:
    """Separation over thirds of the samples by length of their data; a panel for each variant."""
    parts = study.parts()
    panels = {variant: arms for variant in VARIANTS if (arms := _arms(study, variant))}
    key = "main separation"
    if not any(key in study.figures(arm) for arms in panels.values() for arm in arms):
        return None

    def draw(figure: Any) -> None:
        plots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for plot, (variant, arms) in zip(plots, panels.items(), strict=True):
            for place, arm in enumerate(arms):
                colour, line, marker = STYLES[arm.label]
                kept = [(at, one) for at, (_, part) in enumerate(parts) if (one := part.figures(arm).get(key))]
                readings = [one for _, one in kept]
                plot.errorbar(
                    [at + 0.09 * (place - (len(arms) - 1) / 2) for at, _ in kept],
                    [100 * one.estimate.value for one in readings], yerr=_spread(readings), color=colour,
                    linestyle=line, marker=marker, markerfacecolor=colour if line == "-" else "white", capsize=3,
                    label=arm.label,
                )  # fmt: skip
            names = [name.removeprefix("data of ").removesuffix(" characters") for name, _ in parts]
            plot.set_xticks(range(len(parts)), [name.replace(" to ", " to\n") for name in names])
            plot.set_xlim(-0.5, len(parts) - 0.5)
            plot.set_title(variant, fontsize=10)
            plot.grid(axis="y", alpha=0.3)
        plots[0].set_ylabel("separation, points")
        figure.supxlabel("characters of data", fontsize=9)
        _legend(figure, plots)

    return _save("structured-query-separation-by-length", draw, 3.6, folder)


def draw_ceilings(study: Study, folder: Path) -> str | None:
    """Ceiling against average robust accuracy, a mark for each run; on a slope separation is the same."""
    marks: list[tuple[str, str, Reading, Reading]] = []
    for result in study.results:
        one = Study(results=[result], criterion=study.criterion)
        figures = one.figures(Arm(result.setting.variant, result.setting.arm))
        if "main average" in figures and "ceiling" in figures:
            marks.append((result.setting.variant, result.setting.arm, figures["main average"], figures["ceiling"]))
    if not marks:
        return None

    def draw(figure: Any) -> None:
        plot = figure.subplots()
        left = min(60.0, 10 * (min(100 * one.estimate.low for _, _, one, _ in marks) // 10))
        right, top = 103.0, 105.0
        for separation in range(0, 101, 20):
            plot.plot([left, 100], [separation + 100 - left, separation], color="#8c8c8c", linewidth=0.7, zorder=0)
            plot.text(100.4, separation, f"{separation:+d}", fontsize=8, color="#57606a", va="center", ha="left")
        for variant, arm, robust, ceiling in marks:
            colour, line, _ = STYLES[arm_label(arm)]
            plot.errorbar(
                100 * robust.estimate.value, 100 * ceiling.estimate.value, xerr=_spread([robust]),
                yerr=_spread([ceiling]), color=colour, marker=MARKERS[variant], markersize=8,
                markerfacecolor=colour if line == "-" else "white", linewidth=0.8, capsize=2,
            )  # fmt: skip
        for arm in (one for one in ARMS if any(one == mark[1] for mark in marks)):
            colour, line, _ = STYLES[arm_label(arm)]
            face = colour if line == "-" else "white"
            plot.plot([], [], "D", color=colour, markerfacecolor=face, markersize=7, label=arm_label(arm))
        for variant in (one for one in VARIANTS if any(one == mark[0] for mark in marks)):
            plot.plot([], [], MARKERS[variant], color=_INK, markerfacecolor="white", markersize=7, label=variant)
        plot.set_xlim(left, right)
        plot.set_ylim(-3, top)
        plot.set_xlabel(f"robust accuracy, average of the main four, % ({_samples(study)}; lines: equal separation)")
        plot.set_ylabel("ceiling: payload followed in the instruction, %")
        plot.text(0.7, 0.02, "robust because deaf →", transform=plot.transAxes, ha="right", style="italic", zorder=0)
        _legend(figure, [plot], columnspacing=1.0, handletextpad=0.1)

    return _save("structured-query-ceiling", draw, 5.0, folder)


def _arms(study: Study, variant: str) -> list[Arm]:
    return [arm for name in ARMS if study.figures(arm := Arm(variant, name))]


def _samples(study: Study) -> str:
    first = study.results[0].setting
    return f"n = {next(iter(study.figures(Arm(first.variant, first.arm)).values())).estimate.n}"


def _spread(readings: Sequence[Reading]) -> list[list[float]]:
    """How far the intervals reach to either side, in percent; a bootstrap's need not hold its figure."""
    estimates = [one.estimate for one in readings]
    return [
        [100 * max(one.value - one.low, 0) for one in estimates],
        [100 * max(one.high - one.value, 0) for one in estimates],
    ]


def _legend(figure: Any, plots: Sequence[Any], **spacing: float) -> None:
    """One legend for all panels: each arm once, in the arms' order, then what else is named."""
    found = {label: mark for plot in plots for mark, label in zip(*plot.get_legend_handles_labels(), strict=True)}
    arms = [label for label in map(arm_label, ARMS) if label in found]
    labels = [*arms, *(label for label in found if label not in arms)]
    marks = [found[label] for label in labels]
    figure.legend(marks, labels, loc="outside upper center", ncols=len(labels), **spacing)


def _save(name: str, draw: Callable[[Any], None], height: float, folder: Path) -> str:
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own settings must not change the bytes
        matplotlib.rcParams.update(_SETTINGS)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=150)
    return name
