"""What is said of a name that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`did you mean 'x'?` where something in `known` is near to `name`, otherwise nothing.

    Args:
        name: what was given.
        known: what there is.
        cutoff: how near it must be, from 0 to 1 (that of `difflib`).
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a `kind` of thing that is not `known`: the name, the nearest, and all that there are."""
    known = list(known)
    hint = did_you_mean(name, known)
    return ValueError(f"unknown {kind} {name!r}: {hint + ' ' if hint else ''}there are {', '.join(known)}")
