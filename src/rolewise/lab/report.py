"""Results side by side: one table of a seed's arms, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rolewise.evaluation.statistics import Estimate
from rolewise.lab.config import LabConfig
from rolewise.lab.evaluation import LONG
from rolewise.lab.results import LabResult, measured_lengths
from rolewise.lab.rows import ATTACKS, Place
from rolewise.lab.tasks import PAYLOAD_KINDS

if TYPE_CHECKING:
    from rich.table import Table

TableRow = tuple[str, list[str]]
_LEAST_UTILITY = 0.95


def setting_of(config: LabConfig) -> str:
    """What of a configuration differs from the default, besides arm and seed; "default" if nothing does."""
    plain, given = LabConfig().to_dict(), config.to_dict()
    changed = [f"{key}={value}" for key, value in given.items() if key not in ("arm", "seed") and value != plain[key]]
    return ", ".join(changed) or "default"


def label_of(config: LabConfig, others: Sequence[LabConfig]) -> str:
    """The arm, and what sets this configuration apart from the `others` of a table."""
    stored = [one.to_dict() for one in others]
    apart = [
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in config.to_dict().items()
        if key != "arm" and value is not None and any(one[key] != value for one in stored)
    ]
    return "\n".join([config.arm, *apart])


def table_rows(results: Sequence[LabResult]) -> list[TableRow]:
    """Each figure of each result, in percent with its interval."""

    def row(label: str, figure: Callable[[LabResult], Estimate]) -> TableRow:
        return label, [figure(result).percent() for result in results]

    lengths = measured_lengths(results[0])
    places: tuple[Place, ...] = ("begin", "middle")
    rows = [row(f"utility {n}x", lambda one, n=n: one.utility(n)) for n in lengths]
    rows += [row(f"ceiling {n}x", lambda one, n=n: one.ceiling(n)) for n in lengths]
    for name in ATTACKS:
        rows += [row(f"{name} {n}x", lambda one, n=n, name=name: one.success(name, n)) for n in (1, LONG)]
    for place in places:
        rows.append(row(f"naive {place} {LONG}x", lambda one, place=place: one.success("naive", LONG, place=place)))
    for count in (2, 4):
        rows.append(row(f"several {count} {LONG}x", lambda one, count=count: one.success("several", LONG, count=count)))
    for kind in PAYLOAD_KINDS:
        rows.append(row(f"kind {kind} {LONG}x", lambda one, kind=kind: one.success("naive", LONG, kind=kind)))
    rows += [row(f"separation {n}x", lambda one, n=n: one.separation(n)) for n in lengths]
    return rows


def remarks(results: Sequence[LabResult]) -> list[str]:
    """What a reader must know before believing a separation."""
    said: list[str] = []
    for result in results:
        weak = [length for length in measured_lengths(result) if result.utility(length).value < _LEAST_UTILITY]
        if weak:
            lengths = ", ".join(f"{length}x ({result.utility(length).value:.0%})" for length in weak)
            said.append(
                f"{result.config.arm}: utility is below {_LEAST_UTILITY:.0%} at {lengths}; a fall in separation there "
                "may be incapacity. More --base-steps help."
            )
    return said


def show(results: Sequence[LabResult]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print()
    console.print(_table(results))
    for line in remarks(results):
        console.print(Text(line))


def _table(results: Sequence[LabResult]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"Percent [95 % interval], n = {results[0].config.test_samples} test rows of each condition",
        caption="1x, 2x ...: length of the data over the longest in training; attacks: the share where a payload was\n"
        "carried out; ceiling: the same in the user's turn; separation: ceiling minus the attacks' mean",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    configs = [result.config for result in results]
    for config in configs:
        table.add_column(label_of(config, configs), justify="right")
    previous = ""
    for label, cells in table_rows(results):
        group = label.split()[0]
        if previous and group != previous:
            table.add_section()
        previous = group
        table.add_row(label, *cells, style="bold" if group == "separation" else "")
    return table


def markdown(results: Sequence[LabResult]) -> str:
    """The table as Markdown, with what it was made of."""
    configs = [result.config for result in results]
    heads = [label_of(config, configs).replace("\n", ", ") for config in configs]
    lines = [
        "# Lab",
        "",
        f"Percent with 95 % intervals, n = {configs[0].test_samples} test rows of each condition. Attacks: the share "
        "where a payload was carried out. Ceiling: the same in the user's turn. Separation: ceiling minus the attacks' "
        "mean.",
        "",
        f"| | {' | '.join(heads)} |",
        "|---|" + "---|" * len(heads),
        *(f"| {label} | {' | '.join(cells)} |" for label, cells in table_rows(results)),
        "",
        *remarks(results),
    ]
    for result in results:
        ratio = f", table ratio {result.start_ratio:.2f} -> {result.table_ratio:.2f}" if result.table_ratio else ""
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
        lines.append(
            f"- {label_of(result.config, configs).replace(chr(10), ', ')}: seed {result.config.seed}, "
            f"{setting_of(result.config)}; loss {result.loss:.4f}{ratio}; {seconds}"
        )
    versions = ", ".join(f"{name} {number}" for name, number in results[0].versions.items())
    return "\n".join([*lines, "", versions, ""])
