"""The benchmark's page: the paper's Figure 5 and Tables 4 to 8 for the models at hand, and what is missing of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rolewise.evaluation.statistics import Estimate
from rolewise.reporting.figures import Drawing, bars, radar
from rolewise.reporting.wording import percent
from rolewise.reporting.write import put_file
from rolewise.reproduce.plan import SYSTEM
from rolewise.reproduce.readings import ALSO, ATTACKS, CAPABILITIES, TABLES, Reading, Readings, Spoke

NAME = "instruction_hierarchy"


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is said."""

    readings: Readings
    gaps: Sequence[str]
    about: Sequence[str]
    """Grader, attacker, limits, versions: a line each."""
    commands: Sequence[str]
    """Each part as a command of its own."""


def write_page(page: Page, directory: Path) -> list[Path]:
    """Write `instruction_hierarchy.md`, its CSV and its figures; the same runs give the same bytes.

    Returns:
        The files, the page last.
    """
    drawings = draw(page.readings)
    (directory / "figures").mkdir(parents=True, exist_ok=True)
    files = {f"figures/{one.name}.{kind}": getattr(one, kind) for one in drawings for kind in ("png", "svg")}
    files[f"{NAME}.csv"] = table_csv(page.readings).encode()
    files[f"{NAME}.md"] = markdown(page, drawings).encode()
    return [put_file(directory / name, body) for name, body in files.items()]


def draw(readings: Readings) -> list[Drawing]:
    """Figure 5 as bars with intervals, and as a radar of what every model has (three spokes or more)."""
    note = "n and intervals are in the table. What is missing is named on the page."
    found: list[Drawing] = []
    spokes = [spoke for spoke in (*ATTACKS, *CAPABILITIES) if any(readings.row(spoke))]
    if spokes:
        rows = [
            ("attacks" if spoke in ATTACKS else "capabilities", f"{spoke.title}{', worst' if worst else ''}")
            for spoke, worst in _bars(readings, spokes)
        ]
        series = {
            model: [
                _share(one, worst) if (one := readings.read(spoke, model)) else None
                for spoke, worst in _bars(readings, spokes)
            ]
            for model in readings.models
        }
        axis = "robust accuracy, win rate, or rating (1 to 10 as 0 to 100), percent"
        found.append(bars(f"{NAME}-bars", "Instruction Hierarchy: attacks and capabilities", rows, series, axis=axis,
                          note=note))  # fmt: skip
    shared = readings.complete((*ATTACKS, *CAPABILITIES))
    if len(shared) >= 3:
        found.append(
            radar(
                f"{NAME}-radar",
                "Instruction Hierarchy at a glance: averages",
                [spoke.title for spoke in shared],
                {
                    model: [_share(one, False) if (one := readings.read(spoke, model)) else None for spoke in shared]
                    for model in readings.models
                },
                axis="the further out, the better, or the more deaf: see the ceilings",
                note=note,
            )
        )
    return found


def _bars(readings: Readings, spokes: Sequence[Spoke]) -> Iterator[tuple[Spoke, bool]]:
    for spoke in spokes:
        yield spoke, False
        if any(one and one.worst for one in readings.row(spoke)):
            yield spoke, True


def _share(reading: Reading, worst: bool) -> Estimate | None:
    """On a scale from 0 to 1."""
    one, measure = reading.worst if worst else reading.average, reading.measure
    if one is None or measure.is_share:
        return one
    width = measure.high - measure.low
    value, low, high = ((part - measure.low) / width for part in (one.value, one.low, one.high))
    return Estimate(value=value, low=low, high=high, n=one.n)


def markdown(page: Page, drawings: Sequence[Drawing] = ()) -> str:
    """The whole page."""
    readings = page.readings
    lines = [
        "# Instruction Hierarchy", "",
        "The ISE paper's second benchmark (arXiv 2410.09102, Figure 5 and Tables 4 to 8) for "
        f"{', '.join(readings.models)}. Percent with 95 % intervals and n; ratings are from 1 to 10. *Robust* is what "
        "an attack does not achieve; *worst* is the least robust attack, query or category.", "",
        *(f"- {line}" for line in page.about), "",
    ]  # fmt: skip
    if page.gaps:
        lines += ["## What is missing", "", *(f"- {line}" for line in page.gaps), ""]
    lines += ["## Figure 5", ""]
    lines += [line for one in drawings for line in (f"![{one.title}](figures/{one.name}.svg)", "")]
    lines += _table(readings, (*ATTACKS, *CAPABILITIES))
    lines += [
        "## To be read beside it", "",
        "A model that follows no second instruction withstands all attacks: its ceiling (the payload where it may be "
        "followed; the text to be repeated where it is the user's) shows that. A model that refuses everything gives "
        "nothing away, and answers few of the benign prompts.", "", *_table(readings, ALSO),
    ]  # fmt: skip
    for title, spokes in TABLES.items():
        lines += [f"## {title}", "", *_table(readings, spokes)]
    lines += [
        "## How it was run", "",
        f"Rows of indirect injection and AlpacaEval have a system message of ours in front ({SYSTEM!r}): the paper "
        "does not print its own.", "",
        "```sh", *page.commands, "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _table(readings: Readings, spokes: Sequence[Spoke]) -> list[str]:
    rows = [
        f"| {spoke.title} | {' | '.join(_cell(one) for one in readings.row(spoke))} |"
        for spoke in spokes
        if any(readings.row(spoke))
    ]
    if not rows:
        return ["Nothing was run for this; see what is missing.", ""]
    heading = [f"| | {' | '.join(readings.models)} |", "|---|" + "---|" * len(readings.models)]
    return [*heading, *rows, ""]


def _cell(reading: Reading | None) -> str:
    if reading is None:
        return "missing"
    said = f"{_said(reading, reading.average)} (n = {reading.average.n})"
    return f"{said}<br>worst {_said(reading, reading.worst)}" if reading.worst else said


def _said(reading: Reading, estimate: Estimate) -> str:
    if reading.measure.is_share:
        return percent(estimate)
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def table_csv(readings: Readings) -> str:
    """Every figure: section, row, model, statistic, value, low, high, n."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("section", "row", "model", "statistic", "value", "low", "high", "n"))
    sections = {"attacks": ATTACKS, "capabilities": CAPABILITIES, "also": ALSO, **TABLES}
    for section, spokes in sections.items():
        for spoke in spokes:
            for model, one in zip(readings.models, readings.row(spoke), strict=True):
                for statistic in ("average", "worst"):
                    if one and (figure := getattr(one, statistic)):
                        numbers = (round(part, 6) for part in (figure.value, figure.low, figure.high))
                        writer.writerow((section, spoke.title, model, statistic, *numbers, figure.n))
    return out.getvalue()
