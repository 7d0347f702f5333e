"""Several models in one table: figures with intervals, and each model's difference to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rolewise.evaluation.outcomes import Criterion, Run
from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.summary import Difference, Summary, compare, summarise

if TYPE_CHECKING:
    from rich.table import Table

_UTILITY = {
    "rouge_l": "utility: ROUGE-L",
    "reference_logprob": "utility: reference (nats/token)",
    "win": "utility: win rate",
}
_DOMAINS = {"main": "main four", "in_domain": "in-domain", "ood": "OOD", "secalign": "SecAlign"}

Row = tuple[str, list[str], list[str], bool]
"""A label, each model's cell, each model's difference to the first ("" for the first), and whether a rule follows."""


def figure_rows(runs: Sequence[Run], criterion: Criterion = "in_response") -> list[Row]:
    """The rows of the table, in text.

    Raises:
        ValueError: when there are no runs, or they are of different suites.
    """
    if not runs:
        raise ValueError("there are no runs to show; evaluate at least one model")
    summaries = [summarise(run, criterion) for run in runs]
    differences = [compare(one, summaries[0]) for one in summaries[1:]]
    rows: list[Row] = [("samples", [_samples(one) for one in summaries], [""] * len(runs), True)]

    def add(label: str, found: list[Estimate | None], key: str | None = None, *, rule: bool = False) -> None:
        if all(one is None for one in found):
            return
        nats = key == "reference_logprob"
        cells = ["" if one is None else _nats(one) if nats else one.percent() for one in found]
        apart = [_difference(one.get(key) if key else None, nats) for one in differences]
        rows.append((label, cells, ["", *apart], rule))

    for name, label in _UTILITY.items():
        add(label, [one.utility.get(name) for one in summaries], name)
    _close(rows)
    for name in dict.fromkeys(attack for one in summaries for attack in one.robust):
        add(f" {name}", [one.robust.get(name) for one in summaries], name)
    _close(rows)
    for name in dict.fromkeys(group for one in summaries for group in one.groups):
        groups = [one.groups.get(name) for one in summaries]
        label = _DOMAINS.get(name, name)
        single = all(group is None or len(group.attacks) == 1 for group in groups)
        if not single:
            for figure in ("average", "worst", "union"):
                add(f"{label}: {figure}", [group and getattr(group, figure) for group in groups], f"{name} {figure}")
        add(f"{label}: separation", [group and group.separation for group in groups], f"{name} separation")
        score = "SEP score" if runs[0].suite == "sep" else f"{label}: given ceiling"
        add(score, [group and group.given_ceiling for group in groups])
    _close(rows)
    add("ceiling", [one.ceiling for one in summaries], "ceiling")
    add("false alarms", [one.false_alarms for one in summaries])
    return rows


def comparison_table(runs: Sequence[Run], criterion: Criterion = "in_response") -> Table:
    """The table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"{runs[0].suite if runs else ''}, {criterion}: percent [95 % interval]",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("", no_wrap=True)
    for number, run in enumerate(runs):
        table.add_column(run.label, justify="right", overflow="fold")
        if number:
            table.add_column("- first (p)", justify="right")
    for label, cells, apart, rule in figure_rows(runs, criterion):
        shown = [cells[0]]
        for cell, difference in zip(cells[1:], apart[1:], strict=True):
            shown += [cell, difference]
        table.add_row(label, *shown, end_section=rule, style="bold" if label.endswith(("separation", "score")) else "")
    table.caption = (
        "an attack's figure: the share of rows where it fails; ceiling: the payload in the instruction is followed;\n"
        "separation: ceiling minus the mean share of attacks that succeed; given ceiling: robust among samples whose\n"
        "payload is followed there; false alarms: the witness in answers to unattacked rows; differences are paired"
    )
    return table


def _samples(summary: Summary) -> str:
    run = summary.run
    return str(summary.n) if run.complete else f"{summary.n} ({len(run.outcomes)} of {run.expected} answers)"


def _nats(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{estimate.value:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"


def _difference(found: Difference | None, nats: bool) -> str:
    if found is None:
        return ""
    text = _nats(found.estimate, signed=True) if nats else found.estimate.percent(signed=True)
    return text if found.p is None else f"{text} ({'<.001' if found.p < 0.001 else f'{found.p:.3f}'.lstrip('0')})"


def _close(rows: list[Row]) -> None:
    label, cells, apart, _ = rows[-1]
    rows[-1] = (label, cells, apart, True)
