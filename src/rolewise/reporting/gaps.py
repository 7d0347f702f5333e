"""What is missing in a set of runs, or keeps two of them from being compared. Nothing is guessed: it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from rolewise.evaluation.outcomes import CEILING, CLEAN, Outcome
from rolewise.evaluation.suite_info import suite_info
from rolewise.evaluation.table import remarks
from rolewise.evaluation.unaskable import LEFT_OUT, refusals_line
from rolewise.reporting.wording import listed, row_label, shown

if TYPE_CHECKING:
    from rolewise.evaluation.summary import Summary
    from rolewise.reporting.arms import Arm

_TEST_SETTINGS = ("seed", "payload", "position", "struq_compat", "max_tokens", "temperature")
"""Settings of the suite that decide what is asked and how: runs that differ in one are not the same test."""
_OF_THE_MODEL = ("model.", "weights")
"""Settings in which runs differ by design,"""
_OF_COMPUTING = ("model.dtype",)
"""but for these: rounding turns some answers, whatever was trained."""
_FEW = 20  # where every sample has a payload of its own, runs on different samples need not have the same ones
_WITHOUT_DELIMITERS = (CLEAN, CEILING, "naive")
"""Conditions whose text is the same for every model. Others may hold the model's own delimiters."""


def arm_gaps(arm: Arm) -> list[str]:
    """What one run lacks."""
    run, gaps = arm.run, list[str]()
    if run.refused:
        gaps.append(f"{arm.label}: {shown(refusals_line(run, 12))}; {LEFT_OUT}.")
    if not run.outcomes:
        return [*gaps, f"{arm.label}: no answers (of {run.expected}); it is left out of tables and figures."]
    if not run.complete:
        gaps.append(
            f"{arm.label}: the run is incomplete, {len(run.outcomes)} of {run.expected} answers. "
            "Run the evaluation again to finish it."
        )
    summary = next(iter(arm.summaries.values()))
    if summary.missing:
        lacking = listed([f"{shown(name)} ({count})" for name, count in summary.missing.items()])
        gaps.append(
            f"{arm.label}: of {summary.n} samples some lack a condition: {lacking}. "
            "A figure over several conditions uses the samples that have them all."
        )
    if suite_info(run.suite).kind:
        return gaps
    if not summary.robust:
        gaps.append(f"{arm.label}: no attacked rows, so nothing is said of robustness.")
    if summary.ceiling is None:
        gaps.append(f"{arm.label}: no ceiling rows, so separation is unknown, and a deaf model would look robust.")
    if not summary.utility and run.suite not in ("sep", "guardrails"):  # these have no reference answers
        gaps.append(f"{arm.label}: no measure of utility.")
    return gaps


def section_gaps(arms: Sequence[Arm]) -> list[str]:
    """What to know of the figures of one suite's runs, and where the runs are not alike."""
    measured = [arm for arm in arms if arm.summaries]
    if not measured:
        return ["No run has answers: there is nothing to show."]
    gaps = remarks([(arm.label, _first(arm)) for arm in measured])
    info = suite_info(measured[0].run.suite)
    conditions = [dict.fromkeys(row_label(info, outcome) for outcome in arm.run.outcomes) for arm in measured]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(name for one in conditions for name in one):
        without = tuple(arm.label for arm, one in zip(measured, conditions, strict=True) if name not in one)
        if without:
            lacking.setdefault(without, []).append(shown(name))
    gaps += [f"Not in {listed(list(without))}: {listed(names, 12)}." for without, names in lacking.items()]
    ids = [_first(arm).followed.keys() for arm in measured]
    if any(one != ids[0] for one in ids):
        shared = set(ids[0]).intersection(*ids[1:])
        counts = listed([f"{arm.label} {len(one)}" for arm, one in zip(measured, ids, strict=True)])
        gaps.append(
            f"The runs are on different samples ({counts}; {len(shared)} are in all). "
            "Each run's figures use its own; differences use those that both have."
        )
    differing = _differing([arm.settings for arm in measured]) if len(measured) > 1 else {}
    for name, values in differing.items():
        if name in _OF_COMPUTING or not name.startswith(_OF_THE_MODEL):
            each = listed([f"{shown(value)} ({arm.label})" for arm, value in zip(measured, values, strict=True)])
            gaps.append(f"The setting {shown(name)} differs: {each}.")
    payloads = [_payloads(arm.run.outcomes) for arm in measured]
    if any(one != payloads[0] for one in payloads) and max(map(len, payloads)) < _FEW:
        gaps.append("The runs have different payloads: " + "; ".join(
            f"{arm.label}: {listed([shown(text) for text in one], 3) or 'none'}"
            for arm, one in zip(measured, payloads, strict=True)) + ".")  # fmt: skip
    versions = [arm.versions for arm in measured]
    if len(set(versions)) > 1:
        gaps.append("The runs were made with different versions of packages (see the table of runs).")
    return gaps


def criterion_gaps(arms: Sequence[Arm], criterion: str) -> list[str]:
    """Which runs lack the criterion that is shown, and why none is shown that only some have."""
    gaps = [
        f"{arm.label}: its answers were not judged by {criterion}; it is left out of tables and figures (not of the "
        "CSV files)."
        for arm in arms
        if criterion not in arm.summaries
    ]
    for other in dict.fromkeys(name for arm in arms for name in arm.summaries):
        having = [arm.label for arm in arms if other in arm.summaries]
        if len(having) < len(arms) and other != criterion:
            gaps.append(
                f"Shown by {criterion}, which all runs have; only {listed(having)} has been judged by {other} too "
                f"(--criterion {other})."
            )
    return gaps


def _first(arm: Arm) -> Summary:
    """The summary by the suite's first criterion."""
    return next(iter(arm.summaries.values()))


def incomparable(first: Arm, second: Arm) -> str | None:
    """Why a paired comparison of two runs would mislead, or None."""
    for name, (one, other) in _differing([first.settings, second.settings]).items():
        if name.removeprefix("task.") in _TEST_SETTINGS:
            return f"the setting {shown(name)} is {shown(one)} in one and {shown(other)} in the other"
    by_kind = suite_info(first.run.suite).kind is not None
    graders = [arm.settings.get("grader") for arm in (first, second)]
    if by_kind and all(graders) and graders[0] != graders[1]:
        return f"the grader is {shown(graders[0])} in one and {shown(graders[1])} in the other"
    asked = {(one.id, one.condition): one for one in first.run.outcomes}
    shared = [(asked[key], one) for one in second.run.outcomes if (key := (one.id, one.condition)) in asked]
    if not shared:
        return "they share no row"
    for one, other in shared:
        if _payloads([one]) != _payloads([other]):
            return f"sample {shown(one.id)} ({one.condition}) has different payloads in the two"
        if (by_kind or one.condition in _WITHOUT_DELIMITERS) and _texts(one) != _texts(other):
            return f"sample {shown(one.id)} ({one.condition}) is another conversation in the other"
    return None


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not the same in all, with each one's value."""
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for one in settings for name in one):
        values = [one.get(name, "not stated") for one in settings]
        if any(value != values[0] for value in values):
            found[name] = values
    return found


def _payloads(outcomes: Sequence[Outcome]) -> list[str]:
    found: set[str] = set()
    for outcome in outcomes:
        payload = outcome.meta.get("payload")
        if isinstance(payload, Mapping):
            found.add(str(payload.get("text")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return sorted(found)


def _texts(outcome: Outcome) -> list[tuple[str, str]]:
    """What was asked; of a question with a follow-up what was asked first, as the rest holds the model's own answer."""
    messages = outcome.messages
    if outcome.meta.get("turns"):
        messages = list(takewhile(lambda message: message.get("role") != "assistant", messages))
    return [(str(message.get("role")), str(message.get("content"))) for message in messages]
