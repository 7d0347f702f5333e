"""What was measured inside the study's models: a table and figures for each variant, one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.structured_query.estimates import arm_label
from benchmarks.structured_query.figures import ARMS
from benchmarks.structured_query.readings import Result
from benchmarks.structured_query.targets import DATA, VARIANTS
from rolewise.inspection.figures import drawings
from rolewise.inspection.results import Inspection
from rolewise.inspection.tables import attention_rows, probe_rows


def inspections(results: Sequence[Result], variant: str) -> list[Inspection]:
    """The inspections of a variant's arms, of the first seed that has any."""
    there = [one for one in results if one.setting.variant == variant and one.inspection is not None]
    first = min((one.setting.seed for one in there), default=0)
    by_arm = {one.setting.arm: one.inspection for one in there if one.setting.seed == first}
    return [replace(found, label=arm_label(arm)) for arm in ARMS if (found := by_arm.get(arm))]


def draw_inside(results: Sequence[Result], folder: Path) -> list[str]:
    """Draw attention and probes by layer; the names without suffix."""
    names: list[str] = []
    for variant in VARIANTS:
        if not (found := inspections(results, variant)):
            continue
        for one in drawings(found):
            names.append(f"structured-query-inside-{variant}-{one.name}")
            (folder / f"{names[-1]}.png").write_bytes(one.png)
            (folder / f"{names[-1]}.svg").write_bytes(one.svg)
    return names


def section(results: Sequence[Result], drawn: Sequence[str]) -> list[str]:
    """Markdown; nothing when no run has been inspected."""
    lines: list[str] = []
    for variant in VARIANTS:
        if not (found := inspections(results, variant)):
            continue
        settings = found[0].settings
        lines += [
            f"### {DATA[variant].capitalize()}", "",
            f"{settings['samples']} samples, {settings['pairs']} pairs of passages.", "",
            f"| | {' | '.join(one.label for one in found)} |", "|---|" + "---|" * len(found),
        ]  # fmt: skip
        shown = (*attention_rows(found, by_depth=False), *probe_rows(found, every_layer=False))
        lines += [f"| {heading}: {label} | {' | '.join(cells)} |" for heading, label, cells in shown]
        prefix = f"structured-query-inside-{variant}-"
        lines += ["", *(f"![{name.removeprefix(prefix)}]({name}.svg)\n" for name in drawn if name.startswith(prefix))]
    if not lines:
        return []
    return [
        "## Inside", "",
        "*Lift*: attention per token from the answer over even attention, the first token left out. *Accuracy*: a "
        "linear probe tells user from data, in percent; chance is 50. *Offset*: distance of the two roles' means over "
        "the states' length. See the guide to `rolewise inspect-attention`.", "",
        *lines,
    ]  # fmt: skip
