"""One run with its figures by every criterion, and what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rolewise.evaluation.outcomes import Run
from rolewise.evaluation.suite_info import suite_info
from rolewise.evaluation.summary import Summary, summarise
from rolewise.reporting.wording import flat, shown

_DIGEST = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True)
class Arm:
    """One run with its figures."""

    label: str
    """Unique in its section."""
    run: Run
    summaries: dict[str, Summary]
    """By each criterion that its answers were judged by; empty when the run has no outcome."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted names."""
        return flat(self.run.settings)

    def setting(self, *names: str) -> str:
        """The first of these settings that the run has; "not stated" when it has none."""
        return next((shown(self.settings[name]) for name in names if name in self.settings), "not stated")

    @cached_property
    def model(self) -> str:
        """The model's name, with its probe."""
        return shown(self.run.model) + (f" (probe {shown(self.run.probe)})" if self.run.probe else "")

    @cached_property
    def versions(self) -> str:
        """Versions of packages, in one line."""
        named = {shown(name).replace("_", "-"): shown(version) for name, version in sorted(self.run.versions.items())}
        return ", ".join(f"{name} {version}" for name, version in named.items()) or "not stated"

    @cached_property
    def ungraded(self) -> int:
        """Answers that a grader was asked about and gave no verdict on."""
        return sum(bool(one.ungraded) for one in self.run.outcomes)

    @cached_property
    def seed(self) -> str:
        """The seed of the suite."""
        return self.setting("task.seed", "seed")

    @cached_property
    def data(self) -> str:
        """Where the suite's samples came from."""
        digest = self.setting("data")
        known = [self.setting("task.data"), f"sha256 {digest}" if _DIGEST.fullmatch(digest) else digest]
        return ", ".join(one for one in known if one != "not stated") or "not stated"


def same(values: Sequence[str], arms: Sequence[Arm]) -> str:
    """The one value, or each run's own."""
    if len(set(values)) <= 1:
        return values[0] if values else ""
    return "; ".join(f"{value} ({arm.label})" for value, arm in zip(values, arms, strict=True))


def labels_of(runs: Sequence[Run]) -> list[str]:
    """What the runs of one suite are called: each otherwise."""
    labels: list[str] = []
    for run in runs:
        label = shown(run.label) or shown(run.model) or "run"
        if run.probe and shown(run.probe) not in label:
            label = f"{label} ({shown(run.probe)})"
        wanted, copy = label, 1
        while label in labels:
            copy += 1
            label = f"{wanted} #{copy}"
        labels.append(label)
    return labels


def build_arms(runs: Sequence[Run], options: dict[str, Any]) -> list[Arm]:
    """The runs of one suite, summarised."""
    from tqdm import tqdm

    arms: list[Arm] = []
    for label, run in zip(labels_of(runs), tqdm(runs, "summarising", leave=False, disable=None), strict=True):
        summaries: dict[str, Summary] = {}
        if run.outcomes:
            summaries = summaries_of(run, options)
        arms.append(Arm(label, run, summaries))
    return arms


def summaries_of(run: Run, options: dict[str, Any]) -> dict[str, Summary]:
    """A run's figures by each of the suite's criteria that its answers were judged by."""
    info = suite_info(run.suite)
    judged = info.criteria if info.measures else [name for name in info.criteria if name in run.judged]
    return {criterion: summarise(run, criterion, **options) for criterion in judged}
