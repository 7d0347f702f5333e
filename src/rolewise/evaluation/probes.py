"""Identity probes: the same weights, told wrong roles. They cost no training (ISE paper, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolewise.roles import Role, RoleScheme
from rolewise.unknown import unknown_name

PROBES = {
    "system-as-user": "tokens of the system take the user's row",
    "data-as-user": "tokens of the data take the user's row",
    "all-one-role": "system and data take the user's row (what the model writes stays OUTPUT)",
    "scale-0": "the table is switched off: the bare model",
}
"""What each probe does."""

_MOVED: dict[str, tuple[Role, ...]] = {
    "system-as-user": (Role.SYSTEM,),
    "data-as-user": (Role.DATA,),
    "all-one-role": (Role.SYSTEM, Role.DATA),
    "scale-0": (),
}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probe does to the segments of a prompt."""

    rows: tuple[int, ...]
    """The row that each row of the table is replaced by."""
    scale: float | None = None
    """The factor on the table, where the probe sets it."""

    def __call__(self, segment_ids: Sequence[int]) -> list[int]:
        """The segments that the model is told in place of `segment_ids`."""
        return [self.rows[segment] for segment in segment_ids]


def make_probe(name: str | None, scheme: RoleScheme) -> Probe:
    """The probe `name` for a model with this scheme; None changes nothing.

    Raises:
        ValueError: for an unknown name (the nearest is named), or when the probe would change nothing because the
            roles share a row in this scheme.
    """
    rows = list(range(scheme.num_segments))
    if name is None:
        return Probe(rows=tuple(rows))
    if name not in PROBES:
        raise unknown_name("probe", name, PROBES)
    for role in _MOVED[name]:
        rows[scheme.row(role)] = scheme.row(Role.USER)
    if name == "scale-0":
        return Probe(rows=tuple(rows), scale=0.0)
    if rows == list(range(scheme.num_segments)):
        raise ValueError(
            f"probe {name!r} changes nothing for this model: its scheme {scheme.names} gives these roles one row"
        )
    return Probe(rows=tuple(rows))
