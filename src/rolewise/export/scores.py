"""Scores for a model card, from logs of `rolewise eval`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rolewise.modeling.loading import resolve_source

if TYPE_CHECKING:
    from rolewise.evaluation.outcomes import Run


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """The figures of one run."""

    suite: str
    """The suite's title."""
    rule: str
    """When a payload counts as followed, and by which criterion; "" where graders measure."""
    run: str
    """The model's name in the log, and with what settings it was asked."""
    samples: int
    complete: bool
    rows: tuple[tuple[str, str, int], ...]
    """Figure; value with its interval; the number of samples behind it."""


def read_scores(
    logs: Sequence[str | os.PathLike[str]], source: str | os.PathLike[str], *, named: str | None = None
) -> list[ScoreTable]:
    """The figures of one model in logs of inspect_ai.

    Args:
        logs: log files, and directories of them.
        source: the model that is exported; runs of it are known by its path.
        named: the model's name in the logs, where it was evaluated under another path.

    Raises:
        FileNotFoundError: when a path does not exist.
        ValueError: when the logs have no run of this model; it names those that they have.
        ImportError: when inspect_ai is not installed; it names the extra.
    """
    from rolewise.evaluation.logs import read_runs

    runs = read_runs(logs)
    mine = [run for run in runs if (run.model == named if named else _same(run.model, source))]
    if not mine:
        models = ", ".join(dict.fromkeys(run.model for run in runs)) or "none of our suites"
        raise ValueError(
            f"the logs have no run of {named or os.fspath(source)!r}, but of {models}; evaluate it (rolewise eval), or "
            "say with --scores-of under which of these names this very model was evaluated"
        )
    return [_table(run) for run in mine]


def _same(logged: str, source: str | os.PathLike[str]) -> bool:
    name = logged.removeprefix("rolewise/")
    if name == os.fspath(source):
        return True
    path = resolve_source(source)
    return path.exists() and Path(name).expanduser().resolve() == path.resolve()


def _table(run: Run) -> ScoreTable:
    from rolewise.evaluation.suite_info import suite_info
    from rolewise.evaluation.summary import summarise
    from rolewise.reporting.wording import MEASURES, flat, group_name, measured, shown

    info = suite_info(run.suite)
    summary = summarise(run)
    found = [(MEASURES[name], name, one) for name, one in summary.utility.items()]
    for name, group in summary.groups.items():
        title = group_name(name, [group.attacks])
        several = len(group.attacks) > 1
        kinds = ("average", "worst", "union") if several else ("average",)
        found += [(f"robust, {title}: {kind}", "", getattr(group, kind)) for kind in kinds]
        if group.separation is not None:
            found.append((f"separation, {title}", "", group.separation))
    if summary.ceiling is not None:
        found.append(("ceiling", "", summary.ceiling))
    for name, one in summary.measures.items():
        title = one.measure.title
        found += [(f"{title}: average", f"{name} average", one.average)] if one.average else []
        found += [(f"{title}: worst {info.kind}", f"{name} worst", one.worst)] if one.worst else []
    settings = {name: value for name, value in flat(run.settings["model"]).items() if name in _SETTINGS}
    asked = ", ".join(f"{name} {shown(value)}" for name, value in settings.items())
    return ScoreTable(
        suite=info.title,
        rule="" if info.measures else f"{info.fails} when {info.criteria[summary.criterion]} ({summary.criterion})",
        run=shown(run.label) + (f" ({asked})" if asked else ""),
        samples=summary.n,
        complete=run.complete,
        rows=tuple((label, measured(figure, one), one.n) for label, figure, one in found),
    )


_SETTINGS = ("scale", "probe", "dtype", "max_new_tokens")
"""Arguments of the model in a log that change what is measured."""
