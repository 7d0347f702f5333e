"""The tables of suites whose samples are each of one kind."""

from __future__ import annotations

from rolewise.evaluation.kind_table import plural
from rolewise.evaluation.kinds import Measured
from rolewise.reporting.cells import Cell, Column, Table, figure_cell, text_cell
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import measured, shown


def kinds_overview(section: Section) -> Table:
    """Average and worst kind of each measure, a row for each run."""
    kind = section.info.kind or "kind"
    worst = {name: any(_has_worst(one.measures.get(name)) for _, one in section.measured) for name in section.measures}
    columns = [Column("run"), Column("n", True)]
    for name, measure in section.measures.items():
        columns += [Column(f"{measure.title}: average", True)]
        columns += [Column(f"{measure.title}: worst {kind}", True)] if worst[name] else []
    columns += [Column("ungraded", True)]
    rows: list[list[Cell]] = []
    for arm, summary in section.measured:
        row = [text_cell(arm.label), Cell(str(summary.n), summary.n)]
        for name in section.measures:
            one = summary.measures.get(name)
            row.append(figure_cell(one and one.average, f"{name} average"))
            if worst[name]:
                row.append(_worst(name, one))
        rows.append([*row, Cell(str(summary.ungraded), summary.ungraded)])
    return Table(
        key="overview",
        title="Overview",
        columns=columns,
        rows=rows,
        caption=_caption(section) + f" Worst {kind}: the lowest of the {plural(kind)}' own, in brackets which.",
    )


def by_kind(section: Section) -> Table:
    """Each kind's figure by each measure, a column for each run."""
    kind, several = section.info.kind or "kind", len(section.measures) > 1
    rows: list[list[Cell]] = []
    for name, measure in section.measures.items():
        figures = [summary.measures.get(name) for _, summary in section.measured]
        for value in dict.fromkeys(value for one in figures if one for value in one.kinds):
            found = [one.kinds.get(value) if one else None for one in figures]
            counts = sorted({one.n for one in found if one is not None})
            n = "–".join(dict.fromkeys((str(counts[0]), str(counts[-1]))))
            asked = [text_cell(shown(measure.title))] if several else []
            cells = [figure_cell(one, name) for one in found]
            rows.append([text_cell(shown(value)), *asked, Cell(n, counts[0]), *cells])
    return Table(
        key="kinds",
        title=f"By {kind}",
        columns=[
            Column(kind),
            *([Column("figure")] if several else []),
            Column("n", True),
            *(Column(arm.label, True) for arm, _ in section.measured),
        ],
        rows=rows,
        caption=_caption(section),
        empty=f"The rows have no {kind}.",
    )


def figure_words(section: Section, name: str) -> str:
    """A key of `rolewise.evaluation.compare` in words."""
    measure, _, what = name.partition(" ")
    if measure not in section.measures:
        return name
    worst = f"worst {section.info.kind}"
    return f"{section.measures[measure].title}: {worst if what == 'worst' else what}"


def _caption(section: Section) -> str:
    if section.info.measures:
        return (
            "First turn: a grader's rating (1 to 10) of the answer to MT-Bench's first question; both turns: its "
            "rating of the answer to the follow-up, the first in view. Win rate: percent of AlpacaEval's rows where a "
            "grader prefers the answer over the reference, both orders asked, a tie being half. [Interval]. Answers "
            "without a readable verdict are left out and counted."
        )
    held = section.info.held
    return f"{section.rule}. {held[0].upper()}{held[1:]}: the share of rows where that is not so, percent [interval]."


def _has_worst(one: Measured | None) -> bool:
    return one is not None and one.worst is not None


def _worst(name: str, one: Measured | None) -> Cell:
    if one is None or one.worst is None:
        return figure_cell(None)
    return Cell(f"{measured(name, one.worst)} ({shown(one.worst_kind)})", round(one.worst.value, 6))
