"""Who is speaking: the roles, and the rows of the segment table that they take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast


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
        TypeError: when a name is no string or a row no integer.
        ValueError: when a name stands for two rows, a role has no row, a row has no role, or OUTPUT shares its row
            with another role (a generated token must never look like anybody else's).
    """

    names: tuple[str, ...] = ("system", "user", "data", "output")
    """The name of each row, in the order of the table."""
    rows: tuple[int, ...] = (0, 1, 2, 3)
    """The row that each `Role` takes, indexed by the role."""

    def __post_init__(self) -> None:
        _check_tuple("names", self.names, str)
        _check_tuple("rows", self.rows, int)
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise ValueError(f"names={self.names} must give each row a name of its own")
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
    def from_dict(cls, stored: object) -> RoleScheme:
        """Read back what `to_dict` wrote.

        Raises:
            TypeError: when it is of another form.
            ValueError: as `RoleScheme` does.
        """
        values: dict[str, Any] = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
        names, rows = values.get("names"), values.get("rows")
        if not isinstance(names, list | tuple) or not isinstance(rows, list | tuple):
            raise TypeError(f"a stored role scheme has the form {DEFAULT_SCHEME.to_dict()}, not {stored!r:.200}")
        return cls(names=tuple(cast("list[str]", names)), rows=tuple(cast("list[int]", rows)))


def require_scheme(scheme: object) -> RoleScheme:
    """`scheme` when it is one.

    Raises:
        TypeError: when it is not.
    """
    if not isinstance(scheme, RoleScheme):
        raise TypeError(f"scheme must be a rolewise.RoleScheme, such as model.role_scheme, not {type(scheme).__name__}")
    return scheme


def _check_tuple(field: str, values: object, kind: type) -> None:
    if not isinstance(values, tuple) or any(type(value) is not kind for value in cast("tuple[object, ...]", values)):
        raise TypeError(f"{field}={values!r} must be a tuple of {kind.__name__}, such as {_EXAMPLES[field]}")


_EXAMPLES = {"names": ("instruction", "data", "output"), "rows": (0, 0, 1, 2)}

DEFAULT_SCHEME = RoleScheme()
