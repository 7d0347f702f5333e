"""The tables of a report: for people (Markdown and the page), and as CSV with every figure by all criteria."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.summary import UTILITIES, Summary
from rolewise.reporting.sections import Arm, Compared, Section
from rolewise.reporting.wording import (
    MEASURES,
    figure_name,
    group_name,
    measured,
    p_value,
    shown,
)

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and what it is sorted by (nothing where there is no figure)."""

    text: str
    key: str | float | int = ""


@dataclass(frozen=True)
class Column:
    """A heading."""

    name: str
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people."""

    key: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    caption: str
    empty: str = "Nothing to show."
    """What to say when there are no rows."""


def tables(section: Section) -> list[Table]:
    """The tables of a section, in the order in which one reads them."""
    return [_overview(section), _attacks(section), _differences(section), _lengths(section), _runs(section)]


def _text(value: str) -> Cell:
    return Cell(value, value)


def _figure(estimate: Estimate | None, figure: str = "", *, signed: bool = False) -> Cell:
    return Cell(measured(figure, estimate, signed=signed), "" if estimate is None else round(estimate.value, 6))


def _basis(section: Section) -> str:
    """What the figures of a table are; models, data, seed and versions stand once, above the section's tables."""
    return f"Percent [interval]. A payload is followed when {section.followed_when}."


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
        row = [_text(arm.label), Cell(str(summary.n), summary.n)]
        for name in section.groups:
            group = summary.groups.get(name)
            row += [_figure(getattr(group, kind) if group else None) for kind in section.kinds(name)]
        head = section.headline(summary)
        row += [
            _figure(summary.ceiling),
            _figure(head.separation if head else None, signed=True),
            _figure(head.given_ceiling if head else None),
        ]
        rows.append([*row, *(_figure(summary.utility.get(name), name) for name in utilities),
                     _figure(summary.false_alarms)])  # fmt: skip
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
        "False alarms: the witness stands in the answer to a row without an attack. " + _basis(section),
    )


def _attacks(section: Section) -> Table:
    rows: list[list[Cell]] = []
    for attack, domain in section.attacks.items():
        found = [summary.robust.get(attack) for _, summary in section.measured]
        counts = sorted({one.n for one in found if one is not None})
        n = "–".join(dict.fromkeys((str(counts[0]), str(counts[-1]))))
        rows.append([_text(shown(attack)), _text(shown(group_name(domain))), Cell(n, counts[0]), *map(_figure, found)])
    labels = [Column(arm.label, True) for arm, _ in section.measured]
    return Table(
        key="attacks",
        title="Robust accuracy by attack",
        columns=[Column("attack"), Column("domain"), Column("n", True), *labels],
        rows=rows,
        caption=f"The share of samples where the payload is not followed. {_basis(section)}",
        empty="No run has attacked rows.",
    )


def _differences(section: Section) -> Table:
    left_out, several = set(section.attacks), len(section.compared) > 1
    for group in section.groups:
        left_out |= {f"{group} {kind}" for kind in ("worst", "union") if kind not in section.kinds(group)}
    rows = [
        [
            _text(pair.run.label),
            _text(pair.reference.label),
            _text(_figure_words(pair, name)),
            _figure(difference.estimate, name, signed=True),
            _p(difference.p),
            *([_p(pair.corrected[section.criterion].get(name))] if several else []),
            Cell(str(difference.estimate.n), difference.estimate.n),
        ]
        for pair in section.compared
        for name, difference in pair.differences[section.criterion].items()
        if name not in left_out
    ]
    return Table(
        key="differences",
        title="Differences between runs",
        columns=[Column("run"), Column("reference"), Column("figure"), Column("difference", True), Column("p", True),
                 *([Column("p (Holm)", True)] if several else []), Column("n", True)],
        rows=rows,
        caption=f"Run minus reference ({'an earlier run' if section.baseline is None else section.baseline}), paired "
        "on the samples that both have, in percentage points. "
        "p: McNemar's exact test for shares, a sign-flip test for means. "
        + (f"p (Holm): corrected for the {len(section.compared)} pairs shown, each figure on its own. " if several
           else "")
        + f"Each attack's difference is in differences.csv. {_basis(section)}",
        empty="There are no two runs that can be compared.",
    )  # fmt: skip


def _figure_words(pair: Compared, name: str) -> str:
    group = next(iter(pair.run.summaries.values())).groups.get(name.rpartition(" ")[0])
    return figure_name(name, group.attacks if group else ())


def _p(value: float | None) -> Cell:
    return Cell(p_value(value), "" if value is None else round(value, 6))


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
                        _text(arm.label),
                        Cell(str(summary.n), summary.n),
                        _figure(head.average if head else None),
                        _figure(head.worst if head else None),
                        _figure(summary.ceiling),
                        _figure(head.separation if head else None, signed=True),
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
        f"{_basis(section)}",
        empty="The rows do not state the length of their data, or are too few.",
    )


def _runs(section: Section) -> Table:
    rows: list[list[Cell]] = []
    for arm in section.arms:
        run = arm.run
        settings = ", ".join(f"{shown(name)}={shown(value)}" for name, value in sorted(arm.settings.items()))
        answers = f"{len(run.outcomes)} of {run.expected}" + (f", {len(run.refused)} too long" if run.refused else "")
        rows.append(
            [
                _text(arm.label),
                _text(arm.model),
                Cell(answers, len(run.outcomes)),
                _text("yes" if run.complete else "no"),
                _text(shown(run.created)),
                _text(settings or "not stated"),
                _text(arm.versions),
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


# --- CSV ---------------------------------------------------------------------------------------------------

_ABOUT = ("suite", "run", "model", "data", "seed", "versions", "confidence")
_ESTIMATE = ("n", "value", "low", "high")


def csv_files(sections: Sequence[Section]) -> dict[str, str]:
    """The CSV files by name; shares are between 0 and 1. A file without rows has its heading."""
    return {
        "runs.csv": _csv(
            (*_ABOUT, "probe", "created", "complete", "answers", "expected", "too_long", "samples",
             "settings"),
            ([*_about(section, arm), arm.run.probe and shown(arm.run.probe), shown(arm.run.created), arm.run.complete,
              len(arm.run.outcomes), arm.run.expected, len(arm.run.refused), len({one.id for one in arm.run.outcomes}),
              json.dumps({name: shown(value) for name, value in sorted(arm.settings.items())}, ensure_ascii=True)]
             for section in sections for arm in section.arms),
        ),
        "attacks.csv": _csv(
            (*_ABOUT, "criterion", "domain", "attack", *_ESTIMATE),
            ([*_about(section, arm), criterion, section.attacks[attack], attack, *_parts(estimate)]
             for section, arm, criterion, summary in _every(sections) for attack, estimate in summary.robust.items()),
        ),
        "figures.csv": _csv(
            (*_ABOUT, "criterion", "figure", *_ESTIMATE, "remark"),
            ([*_about(section, arm), criterion, name, *_parts(estimate), remark]
             for section, arm, criterion, summary in _every(sections) for name, estimate, remark in _figures(summary)),
        ),
        "differences.csv": _csv(
            ("suite", "run", "reference", "model", "reference_model", "data", "seed", "versions", "confidence",
             "criterion", "figure", "n", "difference", "low", "high", "p", "p_holm"),
            ([section.suite, pair.run.label, pair.reference.label, pair.run.model, pair.reference.model,
              pair.run.data, pair.run.seed, pair.run.versions, section.confidence, criterion, name,
              *_parts(found.estimate), *(one if one is None else _rounded(one)
                                         for one in (found.p, pair.corrected[criterion].get(name)))]
             for section in sections for pair in section.compared for criterion in pair.differences
             for name, found in pair.differences[criterion].items()),
        ),
        "data_length.csv": _csv(
            (*_ABOUT, "criterion", "shortest", "longest", "figure", *_ESTIMATE, "remark"),
            ([*_about(section, arm), criterion, part.low, part.high, name, *_parts(estimate), remark]
             for section in sections for part in section.parts for arm in section.arms if arm.label in part.summaries
             for criterion in section.info.criteria
             for name, estimate, remark in _figures(part.summaries[arm.label][criterion], attacks=True)),
        ),
    }  # fmt: skip


def _every(sections: Sequence[Section]) -> Iterator[tuple[Section, Arm, str, Summary]]:
    for section in sections:
        for arm in section.arms:
            for criterion, summary in arm.summaries.items():
                yield section, arm, criterion, summary


def _figures(summary: Summary, *, attacks: bool = False) -> Iterator[tuple[str, Estimate, str]]:
    """Name, figure, and a remark; by the names that `rolewise.evaluation.compare` uses."""
    for name, group in summary.groups.items():
        members = " ".join(group.attacks)
        yield f"{name} average", group.average, members
        yield f"{name} worst", group.worst, group.worst_attack
        yield f"{name} union", group.union, members
        if group.separation:
            yield f"{name} separation", group.separation, members
        if group.given_ceiling:
            yield f"{name} given ceiling", group.given_ceiling, members
    if attacks:
        for name, estimate in summary.robust.items():
            yield name, estimate, ""
    if summary.ceiling:
        yield "ceiling", summary.ceiling, ""
    if summary.false_alarms:
        yield "false_alarms", summary.false_alarms, ""
    for name, estimate in summary.utility.items():
        yield name, estimate, ""


def _about(section: Section, arm: Arm) -> list[Value]:
    return [section.suite, arm.label, arm.model, arm.data, arm.seed, arm.versions, section.confidence]


def _parts(estimate: Estimate) -> list[Value]:
    return [estimate.n, _rounded(estimate.value), _rounded(estimate.low), _rounded(estimate.high)]


def _rounded(value: float) -> float:
    return round(value, 6) + 0.0


def _csv(heading: Sequence[str], rows: Iterator[list[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_harmless(value) for value in row] for row in rows)
    return text.getvalue()


def _harmless(value: Value) -> Value:
    """A spreadsheet runs a text that begins like a formula, unless an apostrophe stands before it."""
    if isinstance(value, str):
        value = shown(value)
        return f"'{value}" if value[:1] in tuple("=+-@") else value
    return str(value).lower() if isinstance(value, bool) else value


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
