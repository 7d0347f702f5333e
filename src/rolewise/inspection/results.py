"""The figures of an inspection: for each sample and layer a number, from which estimates and differences follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from rolewise.evaluation.statistics import Estimate

Kind = Literal["attention", "probe"]

SHARE, LIFT, SHARE_REST, LIFT_REST = "share", "lift", "share_without_first", "lift_without_first"
"""Measures of attention; the last two leave the first token out."""
ACCURACY, OFFSET = "accuracy", "offset"
"""Measures of the probe."""
PAYLOAD = "payload"
"""The injected payload's tokens, which are also counted under their role."""
FULL, SEGMENTS, TEMPLATE = "full", "segments", "template"
"""What tells the roles apart in a probe: everything, the table alone, the template's text alone."""

_SHARES = (SHARE, SHARE_REST, ACCURACY)
_ANYWHERE = (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measure of a model, for each unit and layer."""

    kind: Kind
    condition: str
    """`clean` or an attack's name; for the probe what tells the roles apart: `full`, `segments` or `template`."""
    role: str
    """Whose tokens are attended to: a row of the role scheme, or `payload`; for the probe the two told apart."""
    measure: str
    """`share`, `lift`, and both `_without_first`; or `accuracy`, `offset`."""
    layers: tuple[int, ...]
    """Blocks from 1; 0 is what enters the first block (the probe only)."""
    units: tuple[str, ...]
    """What was sampled: ids of samples, or of pairs of passages."""
    values: tuple[tuple[float | None, ...], ...]
    """`[units, layers]`; None where a sample has no such tokens."""

    @property
    def key(self) -> tuple[Kind, str, str, str]:
        """What makes two models' measurements the same."""
        return self.kind, self.condition, self.role, self.measure

    def of_units(self, layer: int) -> dict[str, float]:
        """The figure of each unit that has one in a layer."""
        at = self.layers.index(layer)
        return {
            unit: value for unit, row in zip(self.units, self.values, strict=True) if (value := row[at]) is not None
        }

    def over(self, layers: Sequence[int]) -> Measurement:
        """The mean over some layers, for each unit, as a measurement of one layer (the first of them)."""
        places = [self.layers.index(layer) for layer in layers]
        return replace(
            self, layers=(layers[0],), values=tuple((_mean([row[at] for at in places]),) for row in self.values)
        )

    def estimate(self, layer: int) -> Estimate | None:
        """The mean over units in a layer, with its interval; None when no unit has a figure."""
        values = list(self.of_units(layer).values())
        return _estimate(values, (0.0, 1.0) if self._at_an_end(values) else _ANYWHERE)

    def difference(self, reference: Measurement, layer: int) -> Estimate | None:
        """This minus the reference in a layer, paired by unit; None when no unit has both."""
        mine, theirs = self.of_units(layer), reference.of_units(layer)
        paired = [value - theirs[unit] for unit, value in mine.items() if unit in theirs]
        return _estimate(paired, (-1.0, 1.0) if self._at_an_end(list(mine.values())) else _ANYWHERE)

    def _at_an_end(self, values: Sequence[float]) -> bool:
        """Whether all units are at 0 or 1: there, units that agree say less of those unseen than elsewhere."""
        return self.measure in _SHARES and all(value in (0.0, 1.0) for value in values)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _estimate(values: list[float], bounds: tuple[float, float]) -> Estimate | None:
    from rolewise.evaluation.statistics import bootstrap_means

    if not values:
        return None
    return bootstrap_means([[value] for value in values], lambda means: means[..., 0], bounds)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """All that was measured of one model. It holds numbers, and ids of samples, but no text."""

    label: str
    """The model's name."""
    model: Mapping[str, Any]
    """Architecture, number of layers, width, and the table's scale and ratio to the embeddings."""
    settings: Mapping[str, Any]
    """What was asked for, and what a reader must know of the rows."""
    measurements: tuple[Measurement, ...]
    remarks: tuple[str, ...] = ()
    """What could not be measured, and why."""
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    def counted(self) -> str:
        """How many samples, of which data, and how many pairs of passages where there is a probe; for captions."""
        data, pairs = self.settings.get("data"), self.settings["pairs"]
        return f"{self.settings['samples']} samples{f' of {data}' if data else ''}" + (
            f", {pairs} pairs of passages" if pairs else ""
        )

    def find(self, kind: Kind, condition: str, role: str, measure: str) -> Measurement | None:
        """A measurement by its key."""
        wanted = (kind, condition, role, measure)
        return next((one for one in self.measurements if one.key == wanted), None)

    def comparable(self, reference: Inspection) -> bool:
        """Whether a layer of this model can be compared with the same layer of the reference."""
        return self.model["layers"] == reference.model["layers"]

    def only(self, *measures: str) -> Inspection:
        """The same with some measures alone, to keep less.

        Raises:
            ValueError: for a measure that there is not.
        """
        known = (SHARE, LIFT, SHARE_REST, LIFT_REST, ACCURACY, OFFSET)
        if unknown := sorted(set(measures) - set(known)):
            raise ValueError(f"unknown measure {unknown[0]!r}; there are {', '.join(known)}")
        return replace(self, measurements=tuple(one for one in self.measurements if one.measure in measures))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, with the figure of each sample, so that models that were inspected apart can be paired.

        Figures have four digits. A model of 30 layers and 40 samples takes some 400 KB; see `only`.
        """
        stored = asdict(self)
        for one in stored["measurements"]:
            one["values"] = [[None if v is None else float(f"{v:.4g}") for v in row] for row in one["values"]]
        return cast("dict[str, Any]", _plain(stored))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Inspection:
        """Read back what `to_dict` wrote.

        Raises:
            ValueError: when a field is missing or unknown.
        """
        try:
            fields = dict(stored)
            fields["measurements"] = tuple(_measurement(one) for one in stored["measurements"])
            fields["remarks"] = tuple(stored["remarks"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no stored inspection ({error}); Inspection.to_dict writes them") from error


def _measurement(stored: Mapping[str, Any]) -> Measurement:
    fields = dict(stored)
    fields |= {name: tuple(stored[name]) for name in ("layers", "units")}
    fields["values"] = tuple(tuple(row) for row in stored["values"])
    return Measurement(**fields)


def _plain(value: Any) -> Any:
    """The same with lists for tuples, as JSON gives it back."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, Any]", value).items()}
    return [_plain(item) for item in cast("Sequence[Any]", value)] if isinstance(value, list | tuple) else value
