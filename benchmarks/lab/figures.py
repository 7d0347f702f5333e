"""Figures and tables of the lab's study, from its results alone.

    python -m benchmarks.lab.figures

Every point is a mean over seeds; its interval is Student's, over seeds. A difference of two arms is paired by seed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lab.study import RESULTS
from rolewise.evaluation.statistics import Estimate
from rolewise.lab import ARMS, AXES, LENGTHS, LabConfig, LabResult, ResultFile
from rolewise.lab.evaluation import LONG
from rolewise.lab.rows import ATTACKS
from rolewise.lab.tasks import PAYLOAD_KINDS

FIGURES = Path(__file__).parents[1] / "results"
Figure = Callable[[LabResult], float]

# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes for arms without a table.
STYLES = {
    "text": ("#e69f00", "--", "s"), "text+ISE": ("#e69f00", "-", "s"),
    "delimiter": ("#0072b2", "--", "o"), "delimiter+ISE": ("#0072b2", "-", "o"),
}  # fmt: skip

_FEWEST_SEEDS = 3
"""Student's interval over two seeds is twelve times their standard error wide, and would only be in the way."""

# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def over_seeds(values: Sequence[float]) -> Estimate:
    """Mean of one value per seed, with Student's interval; all that is possible when there is one seed."""
    if not values:
        raise ValueError("there are no seeds to take a mean of")
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(value=mean, low=-1.0, high=1.0, n=1)
    degrees = len(values) - 1
    quantile = _T[degrees - 1] if degrees <= len(_T) else 2.0
    half = quantile * statistics.stdev(values) / len(values) ** 0.5
    return Estimate(value=mean, low=mean - half, high=mean + half, n=len(values))


@dataclass(frozen=True, kw_only=True)
class Point:
    """One place on an axis: what it is called, which runs belong to it, and what is read from them."""

    label: str
    changes: dict[str, Any]
    figure: Figure


@dataclass(frozen=True, kw_only=True)
class Axis:
    name: str
    title: str
    points: tuple[Point, ...]


def axes() -> list[Axis]:
    """Every axis of the study, of the test first."""

    def tested(name: str, title: str, points: Iterable[tuple[str, Figure]]) -> Axis:
        made = tuple(Point(label=label, changes={}, figure=figure) for label, figure in points)
        return Axis(name=name, title=title, points=made)

    def trained(name: str, title: str, label: Callable[[dict[str, Any]], str], figure: Figure, suffix: str) -> Axis:
        made = tuple(Point(label=label(changes), changes=changes, figure=figure) for changes in AXES[name])
        return Axis(name=f"{name}-{suffix}", title=title, points=made)

    def separation(length: int) -> Figure:
        return lambda result: result.separation(length).value

    lengths = [(f"{length}x", separation(length)) for length in LENGTHS]
    made = [tested("length", "length of the data", lengths)]
    made += [
        tested(
            f"length-{name}",
            f"length of the data, attack: {name}",
            [(f"{n}x", lambda one, n=n, name=name: one.separation_from(name, n).value) for n in LENGTHS],
        )
        for name in ATTACKS
    ]
    made += [
        tested("utility", "utility by length of the data",
               [(f"{n}x", lambda one, n=n: one.utility(n).value) for n in LENGTHS]),
        tested("ceiling", "ceiling by length of the data",
               [(f"{n}x", lambda one, n=n: one.ceiling(n).value) for n in LENGTHS]),
        tested("position", f"position of the injection, {LONG}x",
               [(place, lambda one, place=place: one.separation_from("naive", LONG, place=place).value)
                for place in ("begin", "middle", "end")]),
        tested("number", f"number of injections, {LONG}x",
               [("1", lambda one: one.separation_from("naive", LONG, place="middle").value)]
               + [(str(n), lambda one, n=n: one.separation_from("several", LONG, count=n).value) for n in (2, 3, 4)]),
        tested("kind", f"kind of the payload, {LONG}x",
               [(kind, lambda one, kind=kind: one.separation_from("naive", LONG, kind=kind).value)
                for kind in PAYLOAD_KINDS]),
    ]  # fmt: skip
    for length in (1, LONG):
        figure, at = separation(length), f"{length}x"
        made += [
            trained("lr", f"learning rate of the table, {at}", lambda c: f"{c['lr_multiple']:g}", figure, at),
            trained("init", f"table at the start, {at}", _start, figure, at),
            trained("mix", f"training rows, {at}", lambda c: c["mix"], figure, at),
            trained("steps", f"training steps, {at}", lambda c: str(c["steps"]), figure, at),
        ]  # fmt: skip
    # Payloads of the kinds that were not injected in training, where half of the kinds were.
    unseen = [
        Point(label=f"{kind}, {'seen' if kind in seen else 'unseen'}", changes={"payload_kinds": seen},
              figure=lambda one, kind=kind: one.separation_from("naive", 1, kind=kind).value)
        for seen in (AXES["unseen"][0]["payload_kinds"], AXES["unseen"][1]["payload_kinds"]) for kind in PAYLOAD_KINDS
    ]  # fmt: skip
    return [*made, Axis(name="unseen", title="kinds of payloads seen or not in training, 1x", points=tuple(unseen))]


def _start(changes: dict[str, Any]) -> str:
    std, ratio = changes["init_std"], changes["init_ratio"]
    return f"std {std:g}" if std is not None else f"ratio {ratio:g}"


def values_at(point: Point, arm: Any, results: Sequence[LabResult]) -> dict[int, float]:
    """The figure of each seed that has a run of this arm at this point."""
    wanted = replace(LabConfig(arm=arm), **point.changes).key
    return {one.config.seed: point.figure(one) for one in results if replace(one.config, seed=0).key == wanted}


def curve(axis: Axis, arm: str, results: Sequence[LabResult]) -> list[Estimate | None]:
    found = [values_at(point, arm, results) for point in axis.points]
    return [over_seeds(list(values.values())) if values else None for values in found]


def varied(axis: Axis, results: Sequence[LabResult]) -> bool:
    """Whether any arm has two points at least that are not the same runs and the same figure: one is no axis."""
    for arm in ARMS:
        found = zip(axis.points, curve(axis, arm, results), strict=True)
        if len({(replace(LabConfig(arm=arm), **p.changes).key, p.figure) for p, one in found if one is not None}) > 1:
            return True
    return False


def draw(axis: Axis, results: Sequence[LabResult], folder: Path) -> bool:
    """Draw one axis as SVG and PNG; False when no run has it."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "rolewise"  # so that the same results give the same file
    from matplotlib import pyplot

    if not varied(axis, results):
        return False
    figure, plot = pyplot.subplots(figsize=(5.6, 3.6), layout="constrained")
    for number, arm in enumerate(ARMS):
        estimates = curve(axis, arm, results)
        kept = [(at, one) for at, one in enumerate(estimates) if one is not None]
        if not kept:
            continue
        colour, line, marker = STYLES[arm]
        shift = 0.06 * (number - 1.5)
        spread = [
            [100 * (one.value - one.low) if one.n >= _FEWEST_SEEDS else 0 for _, one in kept],
            [100 * (one.high - one.value) if one.n >= _FEWEST_SEEDS else 0 for _, one in kept],
        ]
        plot.errorbar(
            [at + shift for at, _ in kept], [100 * one.value for _, one in kept], yerr=spread, color=colour,
            linestyle=line, marker=marker, markerfacecolor=colour if line == "-" else "white", capsize=3, label=arm,
        )  # fmt: skip
    plot.set_xticks(range(len(axis.points)), [point.label.replace(", ", "\n") for point in axis.points])
    plot.set_xlabel(axis.title)
    plot.set_ylabel({"utility": "utility, %", "ceiling": "ceiling, %"}.get(axis.name, "separation, points"))
    plot.grid(axis="y", alpha=0.3)
    plot.legend(frameon=False)
    for suffix, options in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 150})):
        figure.savefig(folder / f"lab-{axis.name}{suffix}", **options)
    pyplot.close(figure)
    return True


def table(axis: Axis, results: Sequence[LabResult]) -> list[str]:
    """Markdown: arms against the points of an axis, and what the table of roles adds to each kind of header."""
    if not varied(axis, results):
        return []
    curves = {arm: curve(axis, arm, results) for arm in ARMS}
    lines = [
        f"### {axis.title[0].upper()}{axis.title[1:]}", "",
        f"| | {' | '.join(point.label for point in axis.points)} |", "|---|" + "---|" * len(axis.points),
    ]  # fmt: skip
    for arm, estimates in curves.items():
        if any(estimates):
            lines.append(f"| {arm} | " + " | ".join(_cell(one) for one in estimates) + " |")
    for with_table, without in (("delimiter+ISE", "delimiter"), ("text+ISE", "text"), ("text+ISE", "delimiter")):
        found = [difference(point, with_table, without, results) for point in axis.points]
        if any(found):
            lines.append(f"| {with_table} - {without} | " + " | ".join(_cell(one, True) for one in found) + " |")
    return [*lines, ""]


def difference(point: Point, first: str, second: str, results: Sequence[LabResult]) -> Estimate | None:
    """First minus second, over the seeds that have both."""
    one, other = values_at(point, first, results), values_at(point, second, results)
    both = sorted(one.keys() & other.keys())
    return over_seeds([one[seed] - other[seed] for seed in both]) if both else None


def _cell(one: Estimate | None, signed: bool = False) -> str:
    if one is None:
        return ""
    if one.n >= _FEWEST_SEEDS:
        return one.percent(signed)
    return f"{100 * one.value:{'+' if signed else ''}.0f} ({'one seed' if one.n == 1 else 'two seeds'})"


def report(results: Sequence[LabResult]) -> str:
    """All tables."""
    seeds = sorted({one.config.seed for one in results})
    seconds = [one.seconds["train"] + one.seconds["test"] for one in results]
    bases = [one.seconds["base"] for one in results if one.seconds["base"] > 5]
    plain = LabConfig()
    lines = [
        "# The lab's study", "",
        f"{len(results)} runs, seeds {seeds}. Percent, mean over seeds with Student's 95 % interval over seeds; "
        "differences are paired by seed. Separation: ceiling minus attack success "
        f"({', '.join(ATTACKS)}: their mean, where no attack is named). Each run tests {plain.test_samples} rows a "
        f"condition. A run took {statistics.median(seconds):.0f} s"
        + (f", pre-training {statistics.median(bases):.0f} s a seed." if bases else "."), "",
        f"Settings, where an axis does not change them: {plain.to_dict()}", "",
    ]  # fmt: skip
    for axis in axes():
        lines += table(axis, results)
    versions = ", ".join(f"{name} {number}" for name, number in results[-1].versions.items())
    return "\n".join(
        [*lines, "`python -m benchmarks.lab.study`, then `python -m benchmarks.lab.figures`; " + versions, ""]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=FIGURES)
    options = parser.parse_args()
    results = ResultFile(options.results).results
    if not results:
        raise SystemExit(f"{options.results} has no results; run python -m benchmarks.lab.study first")
    options.output.mkdir(parents=True, exist_ok=True)
    drawn = [axis.name for axis in axes() if draw(axis, results, options.output)]
    (options.output / "lab.md").write_text(report(results), encoding="utf-8")
    print(f"{len(drawn)} figures and lab.md in {options.output}: {', '.join(drawn)}")


if __name__ == "__main__":
    main()
