"""Runs sorted into sections of one suite each, summarised, compared, and asked what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rolewise.attacks import IN_DOMAIN_ATTACKS, OOD_ATTACKS, SECALIGN_ATTACKS
from rolewise.evaluation.kinds import shared_criterion
from rolewise.evaluation.outcomes import CEILING, CLEAN, Run
from rolewise.evaluation.robustness import MAIN, Group
from rolewise.evaluation.suite_info import Measure, SuiteInfo, suite_info
from rolewise.evaluation.summary import Summary, by_data_length
from rolewise.reporting.arms import Arm, build_arms, labels_of, same, summaries_of
from rolewise.reporting.comparing import Compared, choose_baseline, compare_arms, require_label
from rolewise.reporting.gaps import arm_gaps, criterion_gaps, section_gaps
from rolewise.reporting.wording import group_name, listed, row_label

LEAST_IN_PART = 5
"""Samples that a part by data length needs: the figures of fewer say nothing."""


@dataclass(frozen=True, kw_only=True)
class LengthPart:
    """The samples whose data, before any attack, have a length within these bounds."""

    low: int
    high: int
    n: int
    """Samples in it, over all runs."""
    summaries: dict[str, dict[str, Summary]]
    """By the run's label."""

    @property
    def name(self) -> str:
        """The bounds in words."""
        return f"{self.low}–{self.high}"


@dataclass(frozen=True, kw_only=True)
class Section:
    """All that is known of one suite."""

    suite: str
    arms: list[Arm]
    criterion: str
    confidence: float
    compared: list[Compared]
    """The pairs shown."""
    baseline: str | None
    """The label of the run that all others are compared with; None when all pairs are."""
    parts: list[LengthPart]
    """By data length, shortest first, those that have samples enough; empty when the rows don't state it."""
    gaps: list[str]

    @property
    def title(self) -> str:
        """The suite's name."""
        return self.info.title

    @property
    def info(self) -> SuiteInfo:
        """What the suite is."""
        return suite_info(self.suite)

    @property
    def rule(self) -> str:
        """When a payload counts as followed, or an answer as one that should not be, by the section's criterion."""
        fails = self.info.fails
        return f"{fails[0].upper()}{fails[1:]} when {self.info.criteria[self.criterion]}"

    @cached_property
    def measured(self) -> list[tuple[Arm, Summary]]:
        """The runs that have figures, by the section's criterion."""
        return [(arm, arm.summaries[self.criterion]) for arm in self.arms if self.criterion in arm.summaries]

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """What is measured in a suite that goes by kind; nothing in others."""
        return {name: one.measure for _, summary in self.measured for name, one in summary.measures.items()}

    @cached_property
    def attacks(self) -> dict[str, str]:
        """Every attack that any run has, in order, with its domain; none in suites that go by kind."""
        if self.info.kind:
            return {}
        domains = {
            outcome.condition: outcome.domain
            for arm in self.arms
            for outcome in arm.run.outcomes
            if outcome.condition not in (CLEAN, CEILING)
        }
        return {name: domains[name] for name in sorted(domains, key=condition_order)}

    @cached_property
    def conditions(self) -> list[str]:
        """Every condition that any run has, in order."""
        labels = {row_label(self.info, one) for arm in self.arms for one in arm.run.outcomes}
        return sorted(labels, key=condition_order)

    @cached_property
    def groups(self) -> list[str]:
        """The groups of attacks that any run has, the main one first."""
        found = dict.fromkeys(name for _, summary in self.measured for name in summary.groups)
        return sorted(found, key=lambda name: name != MAIN)

    def group_words(self, group: str) -> str:
        """A group's name, and how much of it the runs have where that is not all."""
        return group_name(
            group, [summary.groups[group].attacks for _, summary in self.measured if group in summary.groups]
        )

    @property
    def head(self) -> str | None:
        """The group whose separation is shown, the same for every run: runs may have different attacks."""
        return next(iter(self.groups), None)

    def headline(self, summary: Summary | None) -> Group | None:
        """A run's figures of the section's head group; None when it lacks the group."""
        return summary.groups.get(self.head) if summary and self.head else None

    def kinds(self, group: str) -> tuple[str, ...]:
        """The figures of a group that say something: with a single attack average, worst and union are one."""
        alone = all(len(summary.groups[group].attacks) == 1 for _, summary in self.measured if group in summary.groups)
        return ("average",) if alone else ("average", "worst", "union")

    def provenance(self, n: str | None = None) -> str:
        """Model, data, seed, versions, n and confidence: what stands above a section's tables and below a figure."""
        arms = [arm for arm, _ in self.measured] or self.arms
        models = "; ".join(arm.label if arm.label == arm.model else f"{arm.label} = {arm.model}" for arm in arms)
        n = n or f"n = {same([str(summary.n) for _, summary in self.measured], arms) or '0'} samples"
        return (
            f"Models: {models}. Data: {same([arm.data for arm in arms], arms)}. "
            f"Seed: {same([arm.seed for arm in arms], arms)}. {n}, {100 * self.confidence:g} % intervals. "
            f"Versions: {same([arm.versions for arm in arms], arms)}."
        )


def condition_order(name: str) -> tuple[int, str]:
    """Sorts conditions as the benchmark lists them, others by name, the ceiling last."""
    known = (CLEAN, *IN_DOMAIN_ATTACKS, *OOD_ATTACKS, *SECALIGN_ATTACKS)
    return (known.index(name) if name in known else len(known) + (name == CEILING)), name


def build_sections(runs: Sequence[Run], *, criterion: str | None = None, confidence: float = 0.95,
                   seed: int = 0, baseline: str | None = None) -> list[Section]:  # fmt: skip
    """One section for each suite, in the order in which the suites come.

    Args:
        runs: what was read from logs; incomplete and empty runs too.
        criterion: what counts as followed on the page, in the suites that have it; elsewhere, and by default, it is
            the suite's first. Tables in CSV have all.
        confidence: of every interval.
        seed: of the bootstrap.
        baseline: the label of the run that the others are compared with. By default each is compared with each, or,
            where there are more than four, with the first.

    Raises:
        ValueError: for a criterion that none of the suites has, or when no run has the label `baseline` (the nearest
            is named).
    """
    suites = {suite: [run for run in runs if run.suite == suite] for suite in dict.fromkeys(run.suite for run in runs)}
    _require_criterion(criterion, list(suites))
    require_label(
        baseline, [*(run.label for run in runs), *(label for one in suites.values() for label in labels_of(one))]
    )
    options: dict[str, Any] = {"confidence": confidence, "seed": seed}

    sections: list[Section] = []
    for suite, of_suite in suites.items():
        info = suite_info(suite)
        arms = build_arms(of_suite, options)
        measured = [arm for arm in arms if arm.summaries]
        answered = [arm.run for arm in measured] or list(of_suite)
        mine = shared_criterion(answered, criterion if criterion in info.criteria else None)
        gaps = [line for arm in arms for line in arm_gaps(arm)]
        gaps += [*section_gaps(arms), *criterion_gaps(measured, mine)]
        chosen = choose_baseline(measured, baseline, gaps)
        compared = compare_arms(measured, chosen, options, gaps)
        parts = [] if info.kind else _length_parts(measured, options)
        if parts is None:
            gaps.append("The rows do not state the length of their data, so nothing is shown by length.")
        elif few := [part for part in parts if part.n < LEAST_IN_PART]:
            left_out = listed([f"{part.name} ({part.n})" for part in few])
            gaps.append(f"By length of the data, parts of fewer than {LEAST_IN_PART} samples are left out: {left_out}.")
        kept = [part for part in parts or () if part.n >= LEAST_IN_PART]
        sections.append(Section(suite=suite, arms=arms, criterion=mine, confidence=confidence, compared=compared,
                                baseline=chosen and chosen.label, parts=kept, gaps=gaps))  # fmt: skip
    return sections


def _require_criterion(criterion: str | None, suites: Sequence[str]) -> None:
    known = dict.fromkeys(name for suite in suites for name in suite_info(suite).criteria)
    if criterion is not None and suites and criterion not in known:
        raise ValueError(f"criterion={criterion!r} must be one of {', '.join(known)}")


def _length_parts(arms: Sequence[Arm], options: dict[str, Any]) -> list[LengthPart] | None:
    """The same cuts for every run, so that their figures can stand side by side; None when lengths are not stated."""
    outcomes = [outcome for arm in arms for outcome in arm.run.outcomes]
    if any("data_chars" not in outcome.meta for outcome in outcomes):
        return None
    if not outcomes:
        return []
    parts: list[LengthPart] = []
    for _, whole in by_data_length(replace(arms[0].run, outcomes=outcomes)):
        ids = {outcome.id for outcome in whole.outcomes}
        lengths = [int(outcome.meta["data_chars"]) for outcome in whole.outcomes]
        found: dict[str, dict[str, Summary]] = {}
        for arm in arms:
            run = replace(arm.run, outcomes=[one for one in arm.run.outcomes if one.id in ids])
            if run.outcomes:
                found[arm.label] = summaries_of(run, options)
        parts.append(LengthPart(low=min(lengths), high=max(lengths), n=len(ids), summaries=found))
    return parts
