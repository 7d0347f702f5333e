"""Runs of an evaluation as numbers, for results that are committed: every table can be made from them, paired tests
included, and they hold no text of any corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolewise.evaluation.outcomes import Outcome, Run
from rolewise.evaluation.suite_info import SUITES
from rolewise.evaluation.summary import UTILITIES

_NUMBERS = (*UTILITIES, "span")
OLDEST = "structured_query"
LATER_OPTIONS: dict[str, dict[str, Any]] = {OLDEST: {"turn": "first", "via": "data", "system": None}}
"""Options that a suite was given when there were records already, and what it had done until then."""


def compact(run: Run) -> dict[str, Any]:
    """A run's outcomes, a list over samples for each condition; null where a sample has no answer."""
    assert run.complete, f"{run.label} is not complete"
    ids = sorted({outcome.id for outcome in run.outcomes})
    place = {id: number for number, id in enumerate(ids)}
    conditions: dict[str, dict[str, Any]] = {}
    lengths = [0] * len(ids)
    kinds: list[str | None] = [None] * len(ids)
    for outcome in run.outcomes:
        assert not outcome.grades, f"{run.label} has grades, which no record keeps"
        found = conditions.setdefault(outcome.condition, {"domain": outcome.domain})
        at = place[outcome.id]
        values = {name: int(followed) for name, followed in outcome.verdicts.items()}
        values |= {name: round(value, 4) for name in _NUMBERS if (value := getattr(outcome, name)) is not None}
        for name, value in values.items():
            found.setdefault(name, [None] * len(ids))[at] = value
        lengths[at] = outcome.meta.get("data_chars", 0)  # only rows with data of their own tell
        kinds[at] = outcome.kind
    # The path is of the machine that it ran on; the file's name says enough.
    task = {**run.settings["task"], "data": Path(run.settings["task"]["data"]).name}
    settings = {**run.settings, "task": task}
    record = {"suite": run.suite, "settings": settings, "ids": ids, "data_chars": lengths, "conditions": conditions}
    return {**record, "kinds": kinds} if any(kinds) else record


def restored(record: Mapping[str, Any], label: str, suite: str = OLDEST) -> Run:
    """A run from the form that `compact` gives it; its outcomes have no answers and no conversations.

    A sample that has no answer under a condition (its prompt was too long for the model, or the condition is not one
    of its own) has no outcome there.

    Args:
        record: from `compact`.
        label: what the run is called in messages.
        suite: the suite of a record that does not tell, as the first that were committed do not.

    Raises:
        ValueError: when two lists have different lengths, or a criterion has another value than 0, 1 and None.
        KeyError: when something is missing.
    """
    suite = record.get("suite", suite)
    ids, lengths, settings = record["ids"], record["data_chars"], dict(record["settings"])
    settings["task"] = LATER_OPTIONS.get(suite, {}) | settings["task"]
    kinds = record.get("kinds", [None] * len(ids))
    outcomes: list[Outcome] = []
    for condition, found in record["conditions"].items():
        criteria = [name for name in SUITES[suite].criteria if name in found]
        if not criteria:
            raise KeyError(SUITES[suite].criterion)
        columns = {name: found[name] for name in (*criteria, *_NUMBERS) if name in found}
        for name, values in {"data_chars": lengths, "kinds": kinds, **columns}.items():
            if len(values) != len(ids):
                raise ValueError(f"{condition} of {label} has {len(values)} values of {name} for {len(ids)} samples")
        for name in criteria:
            if not all(value in (0, 1, None) for value in columns[name]):
                raise ValueError(f"{condition} of {label} has a value of {name} other than 0, 1 and null")
        for at, id in enumerate(ids):
            values = {name: column[at] for name, column in columns.items()}
            verdicts = {name: values.pop(name) for name in criteria}
            if None in verdicts.values():
                continue
            outcomes.append(
                Outcome(
                    id=id, condition=condition, domain=found["domain"], output="", messages=[],
                    meta={"data_chars": lengths[at], **({"category": kinds[at]} if kinds[at] else {})}, **values,
                    verdicts={name: bool(value) for name, value in verdicts.items()},
                )
            )  # fmt: skip
    return Run(
        model=label,
        label=label,
        suite=suite,
        probe=settings["model"].get("probe"),
        settings=settings,
        versions={},
        created="",
        complete=True,
        expected=len(outcomes),
        outcomes=outcomes,
    )
