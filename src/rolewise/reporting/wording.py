"""How figures, names and settings are put into words, the same in every file of a report."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from rolewise.display import safe_text
from rolewise.evaluation.outcomes import Outcome
from rolewise.evaluation.robustness import MAIN
from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.suite_info import SUITES, SuiteInfo
from rolewise.evaluation.table import part_of

GROUPS = {
    MAIN: "main four",
    "in_domain": "in-domain",
    "ood": "out-of-domain",
    "secalign": "SecAlign",
    "adaptive": "adaptive",
}
MEASURES = {
    "rouge_l": "ROUGE-L",
    "correct": "tasks done",
    "reference_logprob": "reference log-likelihood (nats per token)",
    "win": "win rate",
    "ceiling": "ceiling",
    "false_alarms": "false alarms",
    "leaked span": "longest leaked span, words",
}
_RATINGS = {name for info in SUITES.values() for name, one in info.measures.items() if not one.is_share}

# inspect_ai names our models rolewise//home/me/runs/ise: there the path begins at the second slash.
_ABSOLUTE = re.compile(r"(?:(?<![\w.:/~<…-])~?/|(?<=\w/)/|(?<!\w)[A-Za-z]:[\\/])[^\s\"',;|<>/\\]+[/\\][^\s\"',;|<>]+")


def group_name(group: str, members: Sequence[Sequence[str]] = ()) -> str:
    """The name of a group of attacks; with `members`, each run's attacks in it, it says when some are missing."""
    return GROUPS.get(group, group) + part_of(group, members)


def figure_name(figure: str, attacks: Sequence[str] = ()) -> str:
    """A key of `rolewise.evaluation.compare` in words; with `attacks`, those of its group, as in `group_name`."""
    group, _, kind = figure.rpartition(" ")
    if group in GROUPS:
        return f"{group_name(group, [attacks] if attacks else [])}: {kind}"
    return MEASURES.get(figure, figure)


def percent(estimate: Estimate | None, *, signed: bool = False) -> str:
    """`66.3 [59.6, 72.4]`, in percent with the interval; a dash where there is no figure."""
    return _spelled(estimate, 100, ".1f", signed)


def number(estimate: Estimate | None, *, signed: bool = False, digits: int = 3) -> str:
    """`-1.234 [-1.301, -1.187]`: a figure that is no share."""
    return _spelled(estimate, 1, f".{digits}f", signed)


def measured(figure: str, estimate: Estimate | None, *, signed: bool = False) -> str:
    """A figure in percent, except for log-likelihoods, ratings and words."""
    if figure == "reference_logprob":
        return number(estimate, signed=signed)
    if figure == "leaked span" or measure_of(figure) in _RATINGS:
        return number(estimate, signed=signed, digits=2)
    return percent(estimate, signed=signed)


def measure_of(figure: str) -> str:
    """The measure of `<measure> average`, `<measure> worst` and `<measure>/<kind>` (`rolewise.evaluation.compare`)."""
    return figure.partition("/")[0].partition(" ")[0]


def row_label(info: SuiteInfo, outcome: Outcome) -> str:
    """What an outcome's row is called beside its sample's id: its condition, and its kind where suites go by it."""
    return f"{outcome.condition}: {outcome.kind}" if info.kind and outcome.kind else outcome.condition


def _spelled(estimate: Estimate | None, factor: float, style: str, signed: bool) -> str:
    if estimate is None:
        return "—"
    # + 0.0 turns -0.0 into 0.0
    parts = (round(factor * part, 3) + 0.0 for part in (estimate.value, estimate.low, estimate.high))
    value, low, high = (format(part, f"+{style}" if signed else style) for part in parts)
    return f"{value} [{low}, {high}]".replace("-", "\N{MINUS SIGN}")


def p_value(p: float | None) -> str:
    """A p value as it is usually printed; a dash where there is no test."""
    return "—" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def short_paths(text: str) -> str:
    """`text` with absolute paths cut to their last two parts: a report may be published, a home directory need not."""

    def cut(found: re.Match[str]) -> str:
        whole = found.group()
        path = PureWindowsPath(whole) if "\\" in whole else PurePosixPath(whole)
        return "/".join(("…", *[part for part in path.parts if part not in (path.anchor, "~")][-2:]))

    return _ABSOLUTE.sub(cut, text)


def shown(value: Any) -> str:
    """Any setting, label or version, as one line that is safe to print."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return _one_line(value)


@lru_cache(maxsize=4096)
def _one_line(text: str) -> str:
    return safe_text(" ".join(short_paths(text).split()))


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None and value != {}:
            found[f"{prefix}{name}"] = value
    return found


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(names: list[str], most: int = 6) -> str:
    """`a, b and 3 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
