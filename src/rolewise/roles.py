"""Who is speaking: the roles, and the rows of the segment table that they take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Role(IntEnum):
    """The four speakers of a conversation, most privileged first (ISE paper, section 4)."""

    SYSTEM = 0
    USER = 1
    DATA = 2
    OUTPUT = 3


@dataclass(frozen=True, kw_only=True)
class RoleScheme:
    """Which row of the segment table each role takes.

    The default gives each role a row of its own. A smaller hierarchy lets roles share a row: the paper's
    Structured Query benchmark has one instruction type, `RoleScheme(names=("instruction", "data", "output"),
    rows=(0, 0, 1, 2))`.

    Raises:
        ValueError: when a role has no row, a row has no role, or OUTPUT shares its row with another role
            (a generated token must never look like anybody else's).
    """

    names: tuple[str, ...] = ("system", "user", "data", "output")
    """The name of each row, in the order of the table."""
    rows: tuple[int, ...] = (0, 1, 2, 3)
    """The row that each `Role` takes, indexed by the role."""

    def __post_init__(self) -> None:
        if len(self.rows) != len(Role):
            raise ValueError(f"rows={self.rows} must name one row for each of {[role.name for role in Role]}")
        if set(self.rows) != set(range(len(self.names))):
            raise ValueError(
                f"rows={self.rows} must use each row 0..{len(self.names) - 1} of names={self.names} at least once"
            )
        if self.rows.count(self.rows[Role.OUTPUT]) != 1:
            raise ValueError(f"rows={self.rows} lets OUTPUT share a row with another role; give it its own row")

    @property
    def num_segments(self) -> int:
        """The number of rows of the segment table (H in the paper)."""
        return len(self.names)

    @property
    def output(self) -> int:
        """The row of generated tokens and of padding."""
        return self.rows[Role.OUTPUT]

    def row(self, role: Role) -> int:
        """The row that `role` takes."""
        return self.rows[role]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form, as stored in a model's configuration."""
        return {"names": list(self.names), "rows": list(self.rows)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> RoleScheme:
        """Read back what `to_dict` wrote."""
        return cls(names=tuple(stored["names"]), rows=tuple(stored["rows"]))


DEFAULT_SCHEME = RoleScheme()
