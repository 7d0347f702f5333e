"""Which figures a section gets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.summary import Summary
from rolewise.evaluation.table import is_deaf
from rolewise.reporting.curves import curve_drawings
from rolewise.reporting.figures import Drawing, bars, lines, radar, spans
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import group_name, shown

_AXIS = "robust accuracy, percent"
ACCOMPANIES = {"overview": ("overall", "separation"), "attacks": ("attacks", "radar", "budget"), "lengths": ("length",),
              "kinds": ("kinds",)}  # fmt: skip
"""By a table's key, the figures that belong below it (the last part of their names)."""


def drawings(section: Section) -> list[Drawing]:
    """The figures that the section's runs have numbers for; none for a section without figures.

    Bars by attack; average, worst and union by group; a radar of the attacks that all runs have (three or more);
    separation between attack success and ceiling; success over budget of adaptive attacks; average and separation by
    length of the data.
    """
    measured = section.measured
    if not measured:
        return []
    slug = re.sub(r"[^a-z0-9]+", "-", section.suite.lower()).strip("-") or "suite"
    note = f"{section.rule}. {section.provenance()}"
    found: list[Drawing] = []

    def title(words: str) -> str:
        return f"{section.title}: {words}"

    if section.info.kind:
        return _by_kind(section, slug, note)
    attacks = list(section.attacks)
    legend = {arm.label: _legend(arm.label, summary) for arm, summary in measured}
    by_attack: dict[str, list[Estimate | None]] = {
        legend[arm.label]: [summary.robust.get(name) for name in attacks] for arm, summary in measured
    }
    if section.groups and len(attacks) > 1:
        # In two lines, as a group of one row leaves little room beside it.
        names = {group: section.group_words(group).replace(" (", "\n(") for group in section.groups}
        rows = [(names[group], kind) for group in section.groups for kind in section.kinds(group)]
        series = {
            legend[arm.label]: [
                getattr(summary.groups[group], kind) if group in summary.groups else None
                for group in section.groups
                for kind in section.kinds(group)
            ]
            for arm, summary in measured
        }
        found.append(
            bars(f"{slug}-overall", title("average, worst and union of attacks"), rows, series, axis=_AXIS, note=note)
        )
    ends = {
        arm.label: (_success(head.average), summary.ceiling, head.separation)
        for arm, summary in measured
        if (head := section.headline(summary)) and head.separation and summary.ceiling
    }
    head_words = section.group_words(section.head) if section.head else ""
    if ends:
        found.append(
            spans(
                f"{slug}-separation",
                title(f"separation and ceiling, {head_words}"),
                ends,
                note=note,
            )
        )
    if attacks:
        rows = [(shown(group_name(section.attacks[name])), shown(name)) for name in attacks]
        found.append(
            bars(f"{slug}-attacks", title("robust accuracy by attack"), rows, by_attack, axis=_AXIS, note=note)
        )
    everywhere = [at for at in range(len(attacks)) if all(series[at] is not None for series in by_attack.values())]
    if len(everywhere) >= 3:
        found.append(
            radar(
                f"{slug}-radar",
                title("robust accuracy by attack, at a glance"),
                [shown(attacks[at]) for at in everywhere],
                {label: [series[at] for at in everywhere] for label, series in by_attack.items()},
                axis=_AXIS,
                note=f"{note} The further out, the more robust, or deaf: see the ceiling. Intervals are in the bars.",
            )
        )
    return [*found, *curve_drawings(section, slug, note), *_by_length(section, slug, note)]


def _by_length(section: Section, slug: str, note: str) -> list[Drawing]:
    """Average and separation of the main group over the parts by data length."""
    if len(section.parts) < 2 or not section.head:
        return []
    found: list[Drawing] = []
    for name, kind, axis in (("length", "average", _AXIS), ("separation-length", "separation", "separation, points")):
        series: dict[str, list[Estimate | None]] = {}
        for arm, _ in section.measured:
            summaries = [part.summaries.get(arm.label) for part in section.parts]
            heads = [section.headline(one[section.criterion]) if one else None for one in summaries]
            series[arm.label] = [getattr(head, kind) if head else None for head in heads]
        if any(one is not None for estimates in series.values() for one in estimates):
            what = "average robust accuracy" if kind == "average" else kind
            title = f"{section.title}: {what} by length of the data, {section.group_words(section.head)}"
            bins = [part.name for part in section.parts]
            across = "characters of data before the attack"
            found.append(lines(f"{slug}-{name}", title, bins, series, axis=axis, across=across, note=note))
    return found


def _by_kind(section: Section, slug: str, note: str) -> list[Drawing]:
    """Bars by kind, and above them the average: one figure for shares, one for ratings."""
    found: list[Drawing] = []
    for name, shares in (("kinds", True), ("ratings-kinds", False)):
        measures = {key: one for key, one in section.measures.items() if one.is_share is shares}
        rows: list[tuple[str, str]] = []
        series: dict[str, list[Estimate | None]] = {arm.label: [] for arm, _ in section.measured}
        for key, measure in measures.items():
            figures = {arm.label: summary.measures.get(key) for arm, summary in section.measured}
            kinds = list(dict.fromkeys(kind for one in figures.values() if one for kind in one.kinds))
            rows += [(measure.title, shown(label)) for label in ("average", *kinds)]
            for label, one in figures.items():
                series[label] += [one.average if one else None, *(one.kinds.get(k) if one else None for k in kinds)]
        if len(rows) > len(measures):  # an average alone stands in the table
            axis = f"{section.info.held}, percent" if shares else "rating, 1 to 10"
            title = f"{section.title}: {section.info.held if shares else 'ratings'} by {section.info.kind}"
            found.append(bars(f"{slug}-{name}", title, rows, series, axis=axis, note=note, ratings=not shares))
    return found


def _legend(label: str, summary: Summary) -> str:
    """A run's name in a legend, with its ceiling where that is so low that robustness may be deafness."""
    return f"{label} (ceiling {100 * summary.ceiling.value:.3g} %)" if summary.ceiling and is_deaf(summary) else label


def _success(robust: Estimate) -> Estimate:
    """Attack success from robust accuracy."""
    return Estimate(value=1 - robust.value, low=1 - robust.high, high=1 - robust.low, n=robust.n)


def accompanying(table: str, drawn: Sequence[Drawing]) -> list[Drawing]:
    """Those of `drawn` that belong below the table with this key."""
    return [one for one in drawn if one.name.rpartition("-")[2] in ACCOMPANIES.get(table, ())]
