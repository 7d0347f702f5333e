"""Which runs of a section are compared with which, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rolewise.evaluation.statistics import holm
from rolewise.evaluation.summary import Difference, compare
from rolewise.reporting.arms import Arm
from rolewise.reporting.gaps import incomparable
from rolewise.reporting.wording import shown
from rolewise.unknown import did_you_mean

MOST_FOR_ALL_PAIRS = 4
"""With more runs than this, each is compared with one baseline only: ten runs would make 45 pairs."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two runs on the same samples: the run minus the reference."""

    run: Arm
    reference: Arm
    differences: dict[str, dict[str, Difference]]
    corrected: dict[str, dict[str, float]]
    """The p values of the differences that have one, corrected by Holm's procedure for the pairs shown."""


def require_label(baseline: str | None, labels: Sequence[str]) -> None:
    """Refuse a baseline that no run is called by.

    Raises:
        ValueError: when there is none; the nearest is named.
    """
    if baseline is not None and baseline not in labels and shown(baseline) not in map(shown, labels):
        hint = did_you_mean(baseline, labels, cutoff=0.4) or f"they are {', '.join(dict.fromkeys(labels))}"
        raise ValueError(f"baseline={baseline!r}: no run is called so; {hint}")


def choose_baseline(arms: Sequence[Arm], wanted: str | None, gaps: list[str]) -> Arm | None:
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


def compare_arms(arms: Sequence[Arm], baseline: Arm | None, options: dict[str, Any], gaps: list[str]) -> list[Compared]:
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
            one: compare(run.summaries[one], reference.summaries[one], **options)
            for one in run.summaries
            if one in reference.summaries
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
    corrected: list[dict[str, dict[str, float]]] = [{one: {} for one in pair} for pair in pairs]
    for criterion in dict.fromkeys(one for pair in pairs for one in pair):
        for name in dict.fromkeys(name for pair in pairs for name in pair.get(criterion, {})):
            tested = [
                (place, p)
                for place, pair in enumerate(pairs)
                if name in pair.get(criterion, {}) and (p := pair[criterion][name].p) is not None
            ]
            for (place, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
                corrected[place][criterion][name] = p
    return corrected
