"""A report's figures as CSV, all of them, by every criterion."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.summary import Summary
from rolewise.reporting.arms import Arm
from rolewise.reporting.curves import curves_of
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import shown

Value = str | int | float | bool | None


_ABOUT = ("suite", "run", "model", "data", "seed", "versions", "confidence")
_ESTIMATE = ("n", "value", "low", "high")


def csv_files(sections: Sequence[Section]) -> dict[str, str]:
    """The CSV files by name; shares are between 0 and 1. A file without rows has its heading."""
    return {
        "runs.csv": _csv(
            (*_ABOUT, "probe", "created", "complete", "answers", "expected", "too_long", "ungraded", "samples",
             "settings"),
            ([*_about(section, arm), arm.run.probe and shown(arm.run.probe), shown(arm.run.created), arm.run.complete,
              len(arm.run.outcomes), arm.run.expected, len(arm.run.refused), arm.ungraded,
              len({one.id for one in arm.run.outcomes}),
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
        "kinds.csv": _csv(
            (*_ABOUT, "criterion", "measure", "kind", *_ESTIMATE),
            ([*_about(section, arm), criterion, name, kind, *_parts(estimate)]
             for section, arm, criterion, summary in _every(sections) for name, one in summary.measures.items()
             for kind, estimate in one.kinds.items()),
        ),
        "spans.csv": _csv(
            (*_ABOUT, "query", "n", "mean_words", "low", "high", "most_words"),
            ([*_about(section, arm), query, *_parts(span.mean), span.longest]
             for section in sections for arm in section.arms for summary in [*arm.summaries.values()][:1]
             for query, span in (({"all": summary.span} if summary.span else {}) | summary.spans).items()),
        ),
        "curves.csv": _csv(
            (*_ABOUT, "method", "unit", "budget", "fallen", *_ESTIMATE),
            ([*_about(section, arm), method, unit, point.budget, point.successes, *_parts(point.share)]
             for section in sections for arm, method, unit, points in curves_of(section) for point in points),
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
    for name, one in summary.measures.items():
        if one.average:
            yield f"{name} average", one.average, ""
        if one.worst:
            yield f"{name} worst", one.worst, one.worst_kind or ""


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
