"""Keeping a conversation within a length: only data is ever cut, never a header or anybody's instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rolewise.roles import Role

Overflow = Literal["refuse", "truncate_data"]


@dataclass
class Piece:
    """A stretch of tokens: a template's own text, or one content."""

    ids: list[int]
    roles: list[Role]
    train: list[int]
    cuttable: bool = False
    """Whether it is data, which may be cut."""


def fit(pieces: list[Piece], max_length: int | None, overflow: Overflow) -> int:
    """Cut data until the pieces fit; how many tokens were cut."""
    total = sum(len(piece.ids) for piece in pieces)
    if max_length is None or total <= max_length:
        return 0
    data = [piece for piece in pieces if piece.cuttable and piece.ids]
    available = sum(len(piece.ids) for piece in data)
    excess = total - max_length
    if overflow == "refuse" or available < excess:
        hint = (
            "shorten it, or cut its data with overflow='truncate_data'"
            if overflow == "refuse"
            else f"only {available} of them are data, which alone may be cut; shorten the rest"
        )
        raise ValueError(f"the conversation has {total} tokens, more than max_length={max_length}; {hint}")
    lengths = [len(piece.ids) for piece in data]
    # Lower the longest ones to a common level: everything above it goes.
    low, high = 0, max(lengths)
    while low < high:
        level = (low + high + 1) // 2
        if sum(max(length - level, 0) for length in lengths) >= excess:
            low = level
        else:
            high = level - 1
    spare = sum(max(length - low, 0) for length in lengths) - excess
    for piece, length in zip(data, lengths, strict=True):
        keep = length
        if length > low:
            given = min(spare, length - low)
            keep, spare = low + given, spare - given
        piece.ids, piece.roles, piece.train = piece.ids[:keep], piece.roles[:keep], piece.train[:keep]
    return excess
