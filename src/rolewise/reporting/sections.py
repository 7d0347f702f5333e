"""Runs sorted into sections of one suite each, summarised, compared, and asked what is missing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from rolewise.attacks import IN_DOMAIN_ATTACKS, OOD_ATTACKS, SECALIGN_ATTACKS
from rolewise.evaluation.outcomes import CEILING, CLEAN, Run
from rolewise.evaluation.statistics import holm
from rolewise.evaluation.suite_info import SuiteInfo, chosen_criterion, suite_info
from rolewise.evaluation.summary import MAIN, Difference, Group, Summary, by_data_length, compare, summarise
from rolewise.reporting.gaps import arm_gaps, incomparable, section_gaps
from rolewise.reporting.wording import flat, group_name, listed, shown

MOST_FOR_ALL_PAIRS = 4
"""With more runs than this, each is compared with one baseline only: ten runs would make 45 pairs."""
LEAST_IN_PART = 5
"""Samples that a part by data length needs: the figures of fewer say nothing."""
_DIGEST = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True)
class Arm:
    """One run with its figures."""

    label: str
    """Unique in its section."""
    run: Run
    summaries: dict[str, Summary]
    """By each criterion; empty when the run has no outcome."""

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
    def seed(self) -> str:
        """The seed of the suite."""
        return self.setting("task.seed", "seed")

    @cached_property
    def data(self) -> str:
        """Where the suite's samples came from."""
        digest = self.setting("data")
        known = [self.setting("task.data"), f"sha256 {digest}" if _DIGEST.fullmatch(digest) else digest]
        return ", ".join(one for one in known if one != "not stated") or "not stated"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two runs on the same samples: the run minus the reference."""

    run: Arm
    reference: Arm
    differences: dict[str, dict[str, Difference]]
    corrected: dict[str, dict[str, float]]
    """The p values of the differences that have one, corrected by Holm's procedure for the pairs shown."""


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
    def followed_when(self) -> str:
        """When a payload counts as followed, by the section's criterion."""
        return self.info.criteria[self.criterion]

    @cached_property
    def measured(self) -> list[tuple[Arm, Summary]]:
        """The runs that have figures, by the section's criterion."""
        return [(arm, arm.summaries[self.criterion]) for arm in self.arms if arm.summaries]

    @cached_property
    def attacks(self) -> dict[str, str]:
        """Every attack that any run has, in order, with its domain."""
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
        return sorted({one.condition for arm in self.arms for one in arm.run.outcomes}, key=condition_order)

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


def same(values: Sequence[str], arms: Sequence[Arm]) -> str:
    """The one value, or each run's own."""
    if len(set(values)) <= 1:
        return values[0] if values else ""
    return "; ".join(f"{value} ({arm.label})" for value, arm in zip(values, arms, strict=True))


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
    _require_label(
        baseline, [*(run.label for run in runs), *(label for one in suites.values() for label in _labels(one))]
    )
    options: dict[str, Any] = {"confidence": confidence, "seed": seed}

    sections: list[Section] = []
    for suite, of_suite in suites.items():
        arms = _arms(of_suite, options)
        measured = [arm for arm in arms if arm.summaries]
        gaps = [line for arm in arms for line in arm_gaps(arm)]
        gaps += section_gaps(arms)
        chosen = _baseline(measured, baseline, gaps)
        compared = _comparisons(measured, chosen, options, gaps)
        parts = _length_parts(measured, options)
        if parts is None:
            gaps.append("The rows do not state the length of their data, so nothing is shown by length.")
        elif few := [part for part in parts if part.n < LEAST_IN_PART]:
            left_out = listed([f"{part.name} ({part.n})" for part in few])
            gaps.append(f"By length of the data, parts of fewer than {LEAST_IN_PART} samples are left out: {left_out}.")
        kept = [part for part in parts or () if part.n >= LEAST_IN_PART]
        mine = chosen_criterion(suite, criterion if criterion in suite_info(suite).criteria else None)
        sections.append(Section(suite=suite, arms=arms, criterion=mine, confidence=confidence, compared=compared,
                                baseline=chosen and chosen.label, parts=kept, gaps=gaps))  # fmt: skip
    return sections


def _require_criterion(criterion: str | None, suites: Sequence[str]) -> None:
    known = dict.fromkeys(name for suite in suites for name in suite_info(suite).criteria)
    if criterion is not None and suites and criterion not in known:
        raise ValueError(f"criterion={criterion!r} must be one of {', '.join(known)}")


def _require_label(baseline: str | None, labels: Sequence[str]) -> None:
    if baseline is not None and baseline not in labels and shown(baseline) not in map(shown, labels):
        near = difflib.get_close_matches(baseline, labels, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(dict.fromkeys(labels))}"
        raise ValueError(f"baseline={baseline!r}: no run is called so; {hint}")


def _baseline(arms: Sequence[Arm], wanted: str | None, gaps: list[str]) -> Arm | None:
    """The run that the others are compared with, or None for all pairs; what is not shown for it is said."""
    if wanted is not None:
        found = next((arm for arm in arms if shown(wanted) in (arm.label, shown(arm.run.label))), None)
        if found is not None:
            return found
        gaps.append(f"The baseline {shown(wanted)} has no answers here.")
    if len(arms) <= MOST_FOR_ALL_PAIRS:
        return None
    pairs = len(arms) * (len(arms) - 1) // 2
    gaps.append(
        f"{len(arms)} runs make {pairs} pairs: only the differences to {arms[0].label}, the first, are shown "
        "(--baseline NAME takes another)."
    )
    return arms[0]


def _comparisons(arms: Sequence[Arm], baseline: Arm | None, options: dict[str, Any], gaps: list[str]) -> list[Compared]:
    """All pairs, a later run minus an earlier one, or each run minus the baseline."""
    from tqdm import tqdm

    pairs = (
        list(combinations(arms, 2)) if baseline is None else [(baseline, arm) for arm in arms if arm is not baseline]
    )
    if baseline is None and len(wanted := [pair for pair in pairs if _comparable_probes(*pair, arms)]) < len(pairs):
        pairs = wanted
        gaps.append("Runs with a probe are compared with the same model without it only (--baseline NAME: with NAME).")
    found: list[tuple[Arm, Arm, dict[str, dict[str, Difference]]]] = []
    for reference, run in tqdm(pairs, "comparing", leave=False, disable=None):
        if reason := incomparable(run, reference):
            gaps.append(f"{run.label} and {reference.label} are not compared: {reason}.")
            continue
        differences: dict[str, dict[str, Difference]] = {
            one: compare(run.summaries[one], reference.summaries[one], **options) for one in run.summaries
        }
        found.append((run, reference, differences))
    corrected = _corrected([differences for _, _, differences in found])
    return [
        Compared(run=run, reference=reference, differences=differences, corrected=ps)
        for (run, reference, differences), ps in zip(found, corrected, strict=True)
    ]


def _comparable_probes(first: Arm, second: Arm, arms: Sequence[Arm]) -> bool:
    """Whether neither run has a probe and an own reference other than the other run: its model without the probe."""
    for probed, other in ((first, second), (second, first)):
        if probed.run.probe and other not in (own := _unprobed(probed, arms)) and own:
            return False
    return True


def _unprobed(probed: Arm, arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if arm.run.model == probed.run.model and not arm.run.probe]


def _corrected(
    pairs: Sequence[dict[str, dict[str, Difference]]],
) -> list[dict[str, dict[str, float]]]:
    """Each pair's p values, corrected for the number of pairs that test the same figure by the same criterion."""
    criteria = list(pairs[0]) if pairs else []
    corrected: list[dict[str, dict[str, float]]] = [{one: {} for one in criteria} for _ in pairs]
    for criterion in criteria:
        for name in dict.fromkeys(name for pair in pairs for name in pair[criterion]):
            tested = [
                (place, p)
                for place, pair in enumerate(pairs)
                if name in pair[criterion] and (p := pair[criterion][name].p) is not None
            ]
            for (place, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
                corrected[place][criterion][name] = p
    return corrected


def _labels(runs: Sequence[Run]) -> list[str]:
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


def _arms(runs: Sequence[Run], options: dict[str, Any]) -> list[Arm]:
    from tqdm import tqdm

    arms: list[Arm] = []
    for label, run in zip(_labels(runs), tqdm(runs, "summarising", leave=False, disable=None), strict=True):
        summaries: dict[str, Summary] = {}
        if run.outcomes:
            summaries = _summaries(run, options)
        arms.append(Arm(label, run, summaries))
    return arms


def _summaries(run: Run, options: dict[str, Any]) -> dict[str, Summary]:
    return {criterion: summarise(run, criterion, **options) for criterion in suite_info(run.suite).criteria}


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
                found[arm.label] = _summaries(run, options)
        parts.append(LengthPart(low=min(lengths), high=max(lengths), n=len(ids), summaries=found))
    return parts
