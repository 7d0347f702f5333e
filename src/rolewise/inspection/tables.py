"""Inspections as rows: the whole of them for CSV, and what a reader looks at first for the terminal and Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rolewise.display import safe_text
from rolewise.inspection.results import (
    ACCURACY,
    FULL,
    LIFT_REST,
    OFFSET,
    SEGMENTS,
    SHARE,
    TEMPLATE,
    Inspection,
    Kind,
    Measurement,
)
from rolewise.reporting.wording import number, percent

if TYPE_CHECKING:
    from rich.table import Table

    from rolewise.evaluation.statistics import Estimate

SIGNALS = {
    FULL: "template and segments",
    SEGMENTS: "segments only",
    TEMPLATE: "template only",
}
_COLUMNS = (
    "model", "condition", "role", "measure", "layer", "layers", "n", "value", "low", "high",
    "difference", "difference_low", "difference_high",
)  # fmt: skip

Shown = tuple[str, str, list[str]]
"""A heading, a label, and a cell for each model."""


def csv_text(inspections: Sequence[Inspection], kind: Kind) -> str:
    """Every figure of a part, a row each, with its difference to the first model where layers can be compared."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    reference = inspections[0]
    for inspection in inspections:
        for one in inspection.measurements:
            if one.kind != kind:
                continue
            for layer in one.layers:
                estimate = one.estimate(layer)
                if estimate is None:
                    continue
                apart = _difference(inspection, reference, one, layer)
                writer.writerow([
                    inspection.label, one.condition, one.role, one.measure, layer, inspection.model["layers"],
                    estimate.n, *_numbers(estimate), *_numbers(apart),
                ])  # fmt: skip
    return text.getvalue()


def _numbers(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", "", ""]
    return [f"{value:.6g}" for value in (estimate.value, estimate.low, estimate.high)]


def _difference(inspection: Inspection, reference: Inspection, one: Measurement, layer: int) -> Estimate | None:
    if inspection is reference or not inspection.comparable(reference):
        return None
    other = reference.find(*one.key)
    return one.difference(other, layer) if other is not None and layer in other.layers else None


def thirds(layers: Sequence[int]) -> dict[str, list[int]]:
    """Layers by depth: early, middle and late, each a third of them (with fewer than three, no middle)."""
    size = math.ceil(len(layers) / 3)
    parts = {"early": layers[:size], "middle": layers[size : len(layers) - size], "late": layers[len(layers) - size :]}
    return {name: list(part) for name, part in parts.items() if part}


def attention_rows(inspections: Sequence[Inspection], *, by_depth: bool) -> Iterator[Shown]:
    """The lift without the first token of each role under each condition; by depth, and then the raw share as well."""
    for condition, role in _named(inspections, "attention"):
        found = [one.find("attention", condition, role, LIFT_REST) for one in inspections]
        if not by_depth:
            yield (
                f"attention, {condition}",
                f"{role}: lift, all layers",
                ["—" if one is None else number(one.over(one.layers).estimate(one.layers[0])) for one in found],
            )
            continue
        names = dict.fromkeys(name for one in found if one is not None for name in thirds(one.layers))
        for name in names:
            yield f"attention, {condition}", f"{role}: lift, {name} layers", [
                "—" if one is None or name not in (parts := thirds(one.layers))
                else number(one.over(parts[name]).estimate(parts[name][0]))
                for one in found
            ]  # fmt: skip
        shares = [one.find("attention", condition, role, SHARE) for one in inspections]
        yield (
            f"attention, {condition}",
            f"{role}: share, all layers",
            ["—" if one is None else percent(one.over(one.layers).estimate(one.layers[0])) for one in shares],
        )


def probe_rows(inspections: Sequence[Inspection], *, every_layer: bool) -> Iterator[Shown]:
    """Accuracy, then offset, of each probe; in all layers, or in the first, the middle and the last."""
    for signal, _ in _named(inspections, "probe"):
        for measure, spell in ((ACCURACY, percent), (OFFSET, number)):
            found = [one.find("probe", signal, "user, data", measure) for one in inspections]
            layers = sorted({layer for one in found if one is not None for layer in _looked_at(one, every_layer)})
            for layer in layers:
                yield (
                    f"probe, {SIGNALS[signal]}",
                    f"{measure}, layer {layer}",
                    [spell(one.estimate(layer)) if one is not None and layer in one.layers else "—" for one in found],
                )


def _looked_at(one: Measurement, every_layer: bool) -> Sequence[int]:
    last = one.layers[-1]
    return one.layers if every_layer else sorted({0, last // 2, last})


def _named(inspections: Sequence[Inspection], kind: Kind) -> list[tuple[str, str]]:
    """The conditions and roles that occur, in order."""
    keys = ((one.condition, one.role) for found in inspections for one in found.measurements if one.kind == kind)
    return list(dict.fromkeys(keys))


def summary_table(inspections: Sequence[Inspection]) -> Table:
    """What a reader looks at first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    kinds = {one.kind for found in inspections for one in found.measurements}
    legend = {
        "attention": "lift: attention per token over even attention, first token left out",
        "probe": "accuracy: user told from data by a linear probe, percent (chance is 50)\n"
        "offset: distance of the two roles' means over the states' length",
    }
    table = Table(
        title=Text(f"Mean [95 % interval], {safe_text(inspections[0].counted())}"),
        caption="\n".join(text for kind, text in legend.items() if kind in kinds),
        caption_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for one in inspections:
        table.add_column(Text(one.label), justify="right")
    previous = ""
    for heading, label, cells in (
        *attention_rows(inspections, by_depth=False),
        *probe_rows(inspections, every_layer=False),
    ):
        if heading != previous:
            table.add_section()
            table.add_row(Text(heading, style="bold"), *[""] * len(cells))
        previous = heading
        table.add_row(f"  {label}", *cells)
    return table
