"""Success over budget in a section of adaptive attacks: a curve for each run and method."""

from __future__ import annotations

from collections.abc import Iterator

from rolewise.adaptive import CurvePoint, success_figure, success_over_budget, trajectories_of
from rolewise.reporting.arms import Arm
from rolewise.reporting.figures import Drawing
from rolewise.reporting.sections import Section
from rolewise.reporting.wording import shown


def curves_of(section: Section) -> Iterator[tuple[Arm, str, str, list[CurvePoint]]]:
    """Run, method, what its budget counts, and the points; nothing for suites that try once."""
    for arm in section.arms:
        for method, trajectories in trajectories_of(arm.run).items():
            points = success_over_budget(trajectories, confidence=section.confidence)
            yield arm, method, trajectories[0].unit, points


def curve_drawings(section: Section, slug: str, note: str) -> list[Drawing]:
    """A figure for each method, with a curve for each run that was attacked by it."""
    found: dict[tuple[str, str], dict[str, list[CurvePoint]]] = {}
    for arm, method, unit, points in curves_of(section):
        found.setdefault((method, unit), {})[arm.label] = points
    return [
        success_figure(
            f"{slug}-{method.replace('_', '-')}-budget",
            f"{section.title}: success over budget, {shown(method)}",
            curves,
            unit=unit,
            note=note,
        )
        for (method, unit), curves in found.items()
    ]
