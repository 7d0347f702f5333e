"""The KV cache of a batch: buffers that grow in place, cut into prefixes, put together again row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

_ROOM = 64
"""Positions that a buffer gains when it is full, at least; a long one gains a quarter of its length."""

Prefix = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one row, a pair a layer, each [heads, length, size]."""


class GrowingLayer(DynamicLayer):
    """A layer of the cache with room to spare, so that a new token does not copy all that came before it.

    A sliding layer keeps all its positions, too: its window is a matter of the mask, and a prefix can be cut anywhere.
    """

    keys: torch.Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    values: torch.Tensor  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, keys: torch.Tensor | None = None, values: torch.Tensor | None = None, length: int = 0) -> None:
        """Start empty, or with buffers [batch, heads, positions, size] of which the first `length` are filled."""
        super().__init__()
        self.length = length
        if keys is not None and values is not None:
            self.lazy_initialization(keys, values)
            self.keys, self.values = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append [batch, heads, new, size], and return everything."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if self.keys.numel() == 0 or end > self.keys.shape[-2]:
            room = end + max(_ROOM, end // 4)
            self.keys = _grown(self.keys, key_states, self.length, room)
            self.values = _grown(self.values, value_states, self.length, room)
        self.keys[..., self.length : end, :] = key_states
        self.values[..., self.length : end, :] = value_states
        self.length = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def get_seq_length(self) -> int:
        """How many positions are filled."""
        return self.length


def _grown(old: torch.Tensor, like: torch.Tensor, length: int, room: int) -> torch.Tensor:
    # Nothing beyond `length` is read before it is written, so it need not be cleared.
    new = like.new_empty((*like.shape[:-2], room, like.shape[-1]))
    if length:
        new[..., :length, :] = old[..., :length, :]
    return new


def supports_sharing(model: Any) -> bool:
    """Whether all that a model keeps of its past are keys and values (a state-space layer keeps something else)."""
    if getattr(model, "_is_stateful", False):  # some keep it in modules of their own, where no cache shows it
        return False
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def empty_cache() -> Cache:
    """A cache whose layers appear as the model asks for them."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def cut_rows(cache: Cache, lengths: Sequence[int], *, copy: bool = True) -> list[Prefix]:
    """The cache of a left-padded batch as one prefix a row, without the padding.

    Args:
        cache: of the batch.
        lengths: of each row's prefix.
        copy: False gives views, which keep the whole cache in memory, and change with it.
    """
    found: list[Prefix] = []
    for row, length in enumerate(lengths):
        prefix: Prefix = []
        for layer in _layers(cache):
            kept = slice(layer.length - length, layer.length)
            pair = layer.keys[row, :, kept], layer.values[row, :, kept]
            prefix.append((pair[0].clone(), pair[1].clone()) if copy else pair)
        found.append(prefix)
    return found


def join_rows(prefixes: Sequence[Prefix | None], lengths: Sequence[int]) -> Cache:
    """A batch's cache from the first `lengths[row]` positions of each row's prefix, padded on the left."""
    width = max(lengths)
    like = next(prefix for prefix in prefixes if prefix is not None)
    if not width:
        return empty_cache()
    layers: list[GrowingLayer] = []
    for number, pair in enumerate(like):
        buffers = [one.new_empty((len(prefixes), one.shape[0], width + _ROOM, one.shape[-1])) for one in pair]
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True)):
            start = width if prefix is None else width - length
            for which, buffer in enumerate(buffers):
                buffer[row, :, :start] = 0  # masked, but not a number would stay one
                if prefix is not None and length:
                    buffer[row, :, start:width] = prefix[number][which][:, :length]
        layers.append(GrowingLayer(*buffers, length=width))
    return Cache(layers=layers)  # pyright: ignore[reportArgumentType] (a list of layers, as it says)


def kept_in_place(keep: Sequence[bool]) -> list[int]:
    """The rows to keep, in the order that moves the fewest of them: rows from the end fill the gaps before."""
    count = sum(keep)
    surplus = [row for row in range(count, len(keep)) if keep[row]]
    return [row if keep[row] else surplus.pop() for row in range(count)]


def keep_rows(cache: Cache, rows: Sequence[int]) -> None:
    """Drop all rows of the batch but these; those that stay at their place are not copied."""
    moved = [(to, row) for to, row in enumerate(rows) if row != to]
    assert all(row >= len(rows) for _, row in moved), "a row that is kept would be overwritten"
    for layer in _layers(cache):
        for buffer in (layer.keys, layer.values):
            for to, row in moved:
                buffer[to, :, : layer.length] = buffer[row, :, : layer.length]
        layer.keys, layer.values = layer.keys[: len(rows)], layer.values[: len(rows)]


def _layers(cache: Cache) -> list[GrowingLayer]:
    return [layer for layer in cache.layers if isinstance(layer, GrowingLayer)]
