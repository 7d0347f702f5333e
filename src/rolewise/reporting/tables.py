"""The tables of a report for people, in Markdown and on the page; `csv_export` has every figure by all criteria."""

from __future__ import annotations

from rolewise.evaluation.summary import UTILITIES
from rolewise.reporting.cells import Cell, Column, Table, basis, figure_cell, p_cell, text_cell
from rolewise.reporting.comparing import Compared
from rolewise.reporting.kind_tables import by_kind, figure_words, kinds_overview
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import MEASURES, figure_name, group_name, number, shown


def tables(section: Section) -> list[Table]:
    """The tables of a section, in the order in which one reads them."""
    if section.info.kind:
        return [kinds_overview(section), by_kind(section), _differences(section), _runs(section)]
    spans = [_spans(section)] if any(summary.span for _, summary in section.measured) else []
    return [_overview(section), _attacks(section), *spans, _differences(section), _lengths(section), _runs(section)]


def _overview(section: Section) -> Table:
    utilities = [name for name in UTILITIES if any(name in summary.utility for _, summary in section.measured)]
    given = section.info.score
    columns = [Column("run"), Column("n", True)]
    for group in section.groups:
        columns += [Column(f"{section.group_words(group)}: {kind}", True) for kind in section.kinds(group)]
    columns += [Column("ceiling", True), Column("separation", True), Column(given, True)]
    columns += [Column(MEASURES[name], True) for name in utilities] + [Column("false alarms", True)]
    rows: list[list[Cell]] = []
    for arm, summary in section.measured:
        row = [text_cell(arm.label), Cell(str(summary.n), summary.n)]
        for name in section.groups:
            group = summary.groups.get(name)
            row += [figure_cell(getattr(group, kind) if group else None) for kind in section.kinds(name)]
        head = section.headline(summary)
        row += [
            figure_cell(summary.ceiling),
            figure_cell(head.separation if head else None, signed=True),
            figure_cell(head.given_ceiling if head else None),
        ]
        rows.append([*row, *(figure_cell(summary.utility.get(name), name) for name in utilities),
                     figure_cell(summary.false_alarms)])  # fmt: skip
    head = section.group_words(section.head) if section.head else ""
    return Table(
        key="overview",
        title="Overview",
        columns=columns,
        rows=rows,
        caption="Robust accuracy: the payload in "
        f"{section.info.carrier} is not followed; average over the attacks of a group, the worst of them, and union "
        f"(samples that withstand all). Ceiling: the payload is followed in {section.info.authority}. "
        + (f"Separation: ceiling minus attack success ({head}). " if head else "")
        + f"{given[0].upper()}{given[1:]}: robust among samples whose payload is followed in {section.info.authority}. "
        "False alarms: the witness stands in the answer to a row without an attack. " + basis(section),
    )


def _attacks(section: Section) -> Table:
    rows: list[list[Cell]] = []
    for attack, domain in section.attacks.items():
        found = [summary.robust.get(attack) for _, summary in section.measured]
        counts = sorted({one.n for one in found if one is not None})
        n = "–".join(dict.fromkeys((str(counts[0]), str(counts[-1]))))
        rows.append(
            [
                text_cell(shown(attack)),
                text_cell(shown(group_name(domain))),
                Cell(n, counts[0]),
                *map(figure_cell, found),
            ]
        )
    labels = [Column(arm.label, True) for arm, _ in section.measured]
    return Table(
        key="attacks",
        title="Robust accuracy by attack",
        columns=[Column("attack"), Column("domain"), Column("n", True), *labels],
        rows=rows,
        caption=f"The share of samples where the payload is not followed. {basis(section)}",
        empty="No run has attacked rows.",
    )


def _differences(section: Section) -> Table:
    left_out, several = set(section.attacks), len(section.compared) > 1
    each = section.info.kind or "attack"
    units = "in the figures' own units" if section.info.measures else "in percentage points"
    for group in section.groups:
        left_out |= {f"{group} {kind}" for kind in ("worst", "union") if kind not in section.kinds(group)}
    rows = [
        [
            text_cell(pair.run.label),
            text_cell(pair.reference.label),
            text_cell(figure_words(section, name) if section.info.kind else _figure_words(pair, name)),
            figure_cell(difference.estimate, name, signed=True),
            p_cell(difference.p),
            *([p_cell(pair.corrected.get(section.criterion, {}).get(name))] if several else []),
            Cell(str(difference.estimate.n), difference.estimate.n),
        ]
        for pair in section.compared
        for name, difference in pair.differences.get(section.criterion, {}).items()
        if name not in left_out and "/" not in name
    ]
    return Table(
        key="differences",
        title="Differences between runs",
        columns=[Column("run"), Column("reference"), Column("figure"), Column("difference", True), Column("p", True),
                 *([Column("p (Holm)", True)] if several else []), Column("n", True)],
        rows=rows,
        caption=f"Run minus reference ({'an earlier run' if section.baseline is None else section.baseline}), paired "
        "on the samples that both have, "
        f"{units}. p: McNemar's exact test for shares, a sign-flip test for means. "
        + (f"p (Holm): corrected for the {len(section.compared)} pairs shown, each figure on its own. " if several
           else "")
        + f"Each {each}'s difference is in differences.csv. {basis(section)}",
        empty="There are no two runs that can be compared.",
    )  # fmt: skip


def _figure_words(pair: Compared, name: str) -> str:
    group = next(iter(pair.run.summaries.values())).groups.get(name.rpartition(" ")[0])
    return figure_name(name, group.attacks if group else ())


def _spans(section: Section) -> Table:
    """How much of the secrets came out in one run, by query."""
    columns = [Column("query"), Column("n", True)]
    for arm, _ in section.measured:
        columns += [Column(f"{arm.label}: mean words", True), Column(f"{arm.label}: most words", True)]
    rows: list[list[Cell]] = []
    queries = dict.fromkeys(name for _, summary in section.measured for name in summary.spans)
    for query in (None, *queries):
        found = [summary.spans.get(query) if query else summary.span for _, summary in section.measured]
        counts = [str(one.mean.n) if one else "—" for one in found]
        row = [text_cell(shown(query) if query else "all queries"), Cell("–".join(dict.fromkeys(counts)))]
        for one in found:
            row += [
                Cell(number(one and one.mean, digits=1), round(one.mean.value, 6) if one else ""),
                Cell(str(one.longest) if one else "—", one.longest if one else ""),
            ]
        rows.append(row)
    return Table(
        key="spans",
        title="Longest leaked span by query",
        columns=columns,
        rows=rows,
        caption="Words of the secret that stand in the answer in one run without a gap, leaked in full or not: the "
        "mean over secrets [interval], and the most of any answer. Over all queries, each secret's own mean counts "
        "once.",
    )


def _lengths(section: Section) -> Table:
    rows: list[list[Cell]] = []
    for part in section.parts:
        for arm, _ in section.measured:
            if found := part.summaries.get(arm.label):
                summary = found[section.criterion]
                head = section.headline(summary)
                rows.append(
                    [
                        Cell(part.name, part.low),
                        text_cell(arm.label),
                        Cell(str(summary.n), summary.n),
                        figure_cell(head.average if head else None),
                        figure_cell(head.worst if head else None),
                        figure_cell(summary.ceiling),
                        figure_cell(head.separation if head else None, signed=True),
                    ]
                )
    head = section.group_words(section.head) if section.head else "robust"
    return Table(
        key="lengths",
        title="By length of the data",
        columns=[
            Column("characters of data", True),
            Column("run"),
            Column("n", True),
            Column(f"{head}: average", True),
            Column("worst", True),
            Column("ceiling", True),
            Column("separation", True),
        ],
        rows=rows,
        caption=f"The samples in parts of about the same size, by the length of their data before any attack. "
        f"{basis(section)}",
        empty="The rows do not state the length of their data, or are too few.",
    )


def _runs(section: Section) -> Table:
    rows: list[list[Cell]] = []
    for arm in section.arms:
        run = arm.run
        settings = ", ".join(f"{shown(name)}={shown(value)}" for name, value in sorted(arm.settings.items()))
        answers = f"{len(run.outcomes)} of {run.expected}" + (f", {len(run.refused)} not asked" if run.refused else "")
        answers += f", {arm.ungraded} ungraded" if arm.ungraded else ""
        rows.append(
            [
                text_cell(arm.label),
                text_cell(arm.model),
                Cell(answers, len(run.outcomes)),
                text_cell("yes" if run.complete else "no"),
                text_cell(shown(run.created)),
                text_cell(settings or "not stated"),
                text_cell(arm.versions),
            ]
        )
    return Table(
        key="runs",
        title="Runs",
        columns=[
            Column("run"),
            Column("model"),
            Column("answers", True),
            Column("complete"),
            Column("created"),
            Column("settings"),
            Column("versions"),
        ],
        rows=rows,
        caption="What the figures above are of.",
        empty="No runs.",
    )


def markdown(table: Table) -> str:
    """A table in Markdown, its caption below; names can carry no markup."""
    if not table.rows:
        return f"{table.empty}\n"
    lines = [
        "| " + " | ".join(escape_markdown(column.name) for column in table.columns) + " |",
        "|" + "".join("---:|" if column.numeric else "---|" for column in table.columns),
        *("| " + " | ".join(escape_markdown(cell.text) for cell in row) + " |" for row in table.rows),
    ]
    return "\n".join(lines) + f"\n\n{escape_markdown(table.caption)}\n"


_MARKUP = {ord(char): f"\\{char}" for char in "\\`*_[]|#~!"} | {
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord("&"): "&amp;",
}


def escape_markdown(text: str) -> str:
    """`text` as Markdown shows it literally."""
    return text.translate(_MARKUP)
