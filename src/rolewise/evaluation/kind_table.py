"""The rows of the table, and what they mean, for suites whose samples are each of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.suite_info import Measure, SuiteInfo
from rolewise.evaluation.summary import Difference, Summary

KindRow = tuple[str, str, Measure, list[Estimate | None]]
"""A label, the figure's key in `rolewise.evaluation.compare`, its measure, and each model's figure."""


def kind_rows(summaries: Sequence[Summary], info: SuiteInfo) -> list[list[KindRow]]:
    """The figures in parts: averages and worsts of all measures, then each measure's kinds."""
    names = {name: one.measure for summary in summaries for name, one in summary.measures.items()}
    head: list[KindRow] = []
    parts: list[list[KindRow]] = []
    for name, measure in names.items():
        found = [summary.measures.get(name) for summary in summaries]
        head.append((f"{measure.title}: average", f"{name} average", measure, [one and one.average for one in found]))
        if any(one and one.worst for one in found):
            worst: list[Estimate | None] = [one and one.worst for one in found]
            head.append((f"{measure.title}: worst {info.kind}", f"{name} worst", measure, worst))
        kinds = dict.fromkeys(kind for one in found if one for kind in one.kinds)
        title = f" ({measure.title})" if len(names) > 1 else ""
        parts.append(
            [
                (f" {kind}{title}", f"{name}/{kind}", measure, [one and one.kinds.get(kind) for one in found])
                for kind in kinds
                if len(kinds) > 1
            ]
        )
    return [head, *(part for part in parts if part)]


def measured_text(estimate: Estimate | None, measure: Measure, *, signed: bool = False) -> str:
    """A share in percent, a rating as it is, each with its interval."""
    if estimate is None:
        return "—"
    if measure.is_share:
        return estimate.percent(signed=signed)
    sign = "+" if signed else ""
    return f"{estimate.value:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"


def difference_text(found: Mapping[str, Difference], key: str, measure: Measure) -> tuple[str, float | None]:
    """A model's difference to the reference, and its p value; nothing where there is none."""
    one = found.get(key)
    return ("", None) if one is None else (measured_text(one.estimate, measure, signed=True), one.p)


def kind_meanings(info: SuiteInfo, criterion: str) -> list[str]:
    """What the rows mean, a line each."""
    if info.measures:
        return [
            "first turn: a grader's rating, 1 to 10, of the answer to MT-Bench's first question",
            "both turns: its rating of the answer to the follow-up, the first answer in view",
            "win rate: how often a grader prefers the answer over the reference; both orders are asked, a tie is half",
            f"a {info.kind}'s rating is the mean over its questions; answers without a readable verdict are left out",
        ]
    return [
        f"{criterion}: {info.fails} when {info.criteria[criterion]}",
        f"{info.held}: the share of rows where that is not so",
        f"average: over all rows, each counting once; worst {info.kind}: the lowest of the {plural(info.kind)}' own",
    ]


def plural(kind: str | None) -> str:
    """`categories` for category, `types` for type."""
    word = kind or "kind"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
