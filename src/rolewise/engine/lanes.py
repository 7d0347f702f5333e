"""Rows that are decoded together: they come and go, and nothing is copied but the row that does.

A lane is a batch whose rows end in one column, so that a row's positions are neighbours, as windows of attention and
relative positions want them. Its buffers have spare rows and spare columns. A row of other length than its neighbours
costs padding, so a lane takes rows of like length, and others get a lane of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

from rolewise.engine.kv import Prefix, kept_in_place
from rolewise.engine.reader import Reader

_ROOM = 64
"""Spare columns of a new buffer."""
_LIKE_LENGTH = 128
"""Rows whose lengths differ by less may stand in one lane, whatever their lengths."""


def like_lengths(shortest: int, longest: int) -> bool:
    """Whether rows of these lengths may stand in one lane: padding at most doubles what the shortest takes."""
    return longest - shortest <= max(_LIKE_LENGTH, shortest)


class LaneLayer(DynamicLayer):
    """A layer of a lane: buffers [spare rows, heads, spare columns, size], of which a window is in use."""

    keys: torch.Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    values: torch.Tensor  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, like: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Empty, for rows like this one's keys and values [heads, length, size]."""
        super().__init__()
        self.first = self.end = 0
        self.lazy_initialization(*like)
        self.keys, self.values = (one.new_zeros((0, one.shape[0], 0, one.shape[-1])) for one in like)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append [rows, heads, new, size], and return everything."""
        rows, end = key_states.shape[0], self.end + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self.make_room(rows, left=0, right=end - self.end)
            end = self.end + key_states.shape[-2]
        self.keys[:rows, :, self.end : end] = key_states
        self.values[:rows, :, self.end : end] = value_states
        self.end = end
        window = slice(self.first, end)
        return self.keys[:rows, :, window], self.values[:rows, :, window]

    def make_room(self, rows: int, *, left: int, right: int) -> None:
        """New buffers with what is in use, for so many rows at least, and so many columns more on either side."""
        used, width = min(rows, self.keys.shape[0]), self.end - self.first
        spare = right + max(_ROOM, width // 4)
        for name in ("keys", "values"):
            old: torch.Tensor = getattr(self, name)
            new = old.new_zeros((_rounded(rows), old.shape[1], left + width + spare, old.shape[-1]))
            new[:used, :, left : left + width] = old[:used, :, self.first : self.end]
            setattr(self, name, new)
        self.first, self.end = left, left + width

    def get_seq_length(self) -> int:
        """How many columns are in use."""
        return self.end - self.first


def _rounded(rows: int) -> int:
    return 1 << (rows - 1).bit_length()


class Lane:
    """A batch of rows under way.

    Args:
        reader: computes.
    """

    def __init__(self, reader: Reader) -> None:
        self.lengths: list[int] = []
        """Positions of each row that are known."""
        self._reader = reader
        self._layers: list[LaneLayer] = []
        self._cache: Any = None
        self._mask = torch.zeros((0, 0), dtype=torch.long, device=reader.model.device)

    @property
    def width(self) -> int:
        """Columns in use."""
        return self._mask.shape[1]

    @property
    def held(self) -> int:
        """Positions that the buffers have room for."""
        return self._layers[0].keys.shape[0] * self._layers[0].keys.shape[2] if self._layers else 0

    def takes(self, lengths: Sequence[int]) -> bool:
        """Whether rows of these lengths may join."""
        every = [*self.lengths, *lengths]
        return like_lengths(min(every), max(every))

    def join(self, prefix: Prefix, length: int) -> None:
        """Add a row at the end, from its keys and values (which are copied)."""
        if not self._layers:
            self._layers = [LaneLayer(pair) for pair in prefix]
            self._cache = Cache(layers=self._layers)  # pyright: ignore[reportArgumentType] (a list, as it says)
        rows, extra = len(self.lengths), max(0, length - self.width)
        for layer, pair in zip(self._layers, prefix, strict=True):
            if layer.keys.shape[0] <= rows or layer.first < extra:
                layer.make_room(rows + 1, left=extra, right=0)
            old = layer.first
            layer.first -= extra
            for buffer, one in zip((layer.keys, layer.values), pair, strict=True):
                buffer[:rows, :, layer.first : old] = 0  # masked, but not a number would stay one
                buffer[rows, :, layer.first : layer.end - length] = 0
                buffer[rows, :, layer.end - length : layer.end] = one[:, :length]
        mask = self._mask.new_zeros((rows + 1, self.width + extra))
        mask[:rows, extra:] = self._mask
        mask[rows, mask.shape[1] - length :] = 1
        self._mask = mask
        self.lengths.append(length)

    def prefix(self, row: int) -> Prefix:
        """Keys and values of a row, as views that change with the lane."""
        length = self.lengths[row]
        return [
            (layer.keys[row, :, layer.end - length : layer.end], layer.values[row, :, layer.end - length : layer.end])
            for layer in self._layers
        ]

    def keep(self, keep: Sequence[bool]) -> list[int]:
        """Drop the other rows; returns which row stands at each place now."""
        rows = kept_in_place(keep)
        for layer in self._layers:
            for buffer in (layer.keys, layer.values):
                for to, row in enumerate(rows):
                    if to != row:
                        buffer[to, :, layer.first : layer.end] = buffer[row, :, layer.first : layer.end]
        self.lengths = [self.lengths[row] for row in rows]
        spare = self.width - max(self.lengths, default=0)
        for layer in self._layers:
            layer.first += spare
        self._mask = self._mask[rows, spare:]
        return rows

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Compute the next token of each row; the logits after it, [rows, vocabulary]."""
        device = self._mask.device
        self._mask = torch.cat([self._mask, self._mask.new_ones((len(tokens), 1))], dim=1)
        positions = torch.tensor(self.lengths, device=device)
        logits, _ = self._reader.step(torch.tensor(tokens, device=device), self._mask, positions, self._cache)
        self.lengths = [length + 1 for length in self.lengths]
        return logits


class Alone:
    """A lane of one row, of a model that keeps something else than keys and values of its past."""

    held = 0

    def __init__(self, reader: Reader, cache: Any, length: int) -> None:
        self.lengths = [length]
        self._reader, self._cache = reader, cache

    def takes(self, lengths: Sequence[int]) -> bool:
        """No row may join."""
        return False

    def keep(self, keep: Sequence[bool]) -> list[int]:
        """As a lane does."""
        rows = [row for row, kept in enumerate(keep) if kept]
        self.lengths = [self.lengths[row] for row in rows]
        return rows

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """As a lane does."""
        device = self._reader.model.device
        ids, positions = torch.tensor(tokens, device=device), torch.tensor(self.lengths, device=device)
        logits, self._cache = self._reader.step(ids, torch.ones_like(ids)[:, None], positions, self._cache)
        self.lengths = [length + 1 for length in self.lengths]
        return logits
