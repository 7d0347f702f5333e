"""Keys and values of prompts and answers of late, to begin the next ones with.

A position's keys and values depend on all tokens up to it, on their segments, and on the factor on the segment table.
So all three make the key. A store that is keyed on tokens alone would hand what was computed for a user's text to the
same text in a document.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from rolewise.engine.kv import Prefix

BLOCK = 32
"""Positions that are kept, found and dropped together."""

BlockKey = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a block, and their segments."""


def block_keys(ids: Sequence[int], segments: Sequence[int]) -> list[BlockKey]:
    """The whole blocks at the beginning of a row, as they are compared."""
    return [
        (tuple(ids[at : at + BLOCK]), tuple(segments[at : at + BLOCK])) for at in range(0, len(ids) - BLOCK + 1, BLOCK)
    ]


class _Block:
    """A block after a certain past: a node of a tree whose roots are the scales."""

    def __init__(self, parent: _Block | None, key: BlockKey | None, pieces: list[torch.Tensor]) -> None:
        self.parent, self.key = parent, key
        self.pieces = pieces
        """Keys and values of all layers, those of one shape stacked: [2 * layers, heads, BLOCK, size]."""
        self.after: dict[BlockKey, _Block] = {}


class PrefixStore:
    """Least recently used blocks go first; a beginning that several rows share is kept once.

    Args:
        max_tokens: the most positions to keep; 0 keeps nothing.
    """

    def __init__(self, max_tokens: int) -> None:
        if max_tokens < 0:
            raise ValueError(f"cache_tokens={max_tokens} must not be negative; 0 keeps nothing")
        self._room = max_tokens // BLOCK
        self._roots: dict[float, _Block] = {}
        self._used: OrderedDict[_Block, None] = OrderedDict()
        self._groups: list[list[int]] = []
        """Places in a flat list (keys, values of the first layer, of the second ...) whose tensors have one shape."""

    @property
    def room(self) -> int:
        """Positions that can be kept."""
        return self._room * BLOCK

    @property
    def tokens(self) -> int:
        """Positions that are kept now."""
        return len(self._used) * BLOCK

    def find(self, scale: float, keys: Sequence[BlockKey], limit: int) -> tuple[int, Prefix | None]:
        """The longest known beginning of a row.

        Args:
            scale: the factor on the segment table.
            keys: the row's, from `block_keys`.
            limit: the most positions to return.

        Returns:
            how many positions it has, and their keys and values (a copy); 0 and None where nothing is known.
        """
        path = self._path(scale, keys[: limit // BLOCK])
        self._touch(path)
        return (len(path) * BLOCK, self._joined(path)) if path else (0, None)

    def known(self, scale: float, keys: Sequence[BlockKey]) -> int:
        """How many positions of a row are known."""
        return len(self._path(scale, keys)) * BLOCK

    def put(self, scale: float, keys: Sequence[BlockKey], prefix: Prefix) -> None:
        """Keep the blocks of a row.

        Args:
            scale: the factor on the segment table that it was computed with.
            keys: the row's, from `block_keys`.
            prefix: its keys and values, at least as long; they are copied.
        """
        keys = keys[: self._room]
        path = self._path(scale, keys)
        if len(path) < len(keys):
            flat = self._flat(prefix)
            block = path[-1] if path else self._roots.setdefault(scale, _Block(None, None, []))
            for number in range(len(path), len(keys)):
                at = slice(number * BLOCK, (number + 1) * BLOCK)
                pieces = [torch.stack([flat[place][:, at] for place in group]) for group in self._groups]
                block.after[keys[number]] = block = _Block(block, keys[number], pieces)
                path.append(block)
        self._touch(path)
        while len(self._used) > self._room:
            oldest, _ = self._used.popitem(last=False)
            assert not oldest.after, "a block was used later than what it follows"
            if oldest.parent is not None and oldest.key is not None:  # only roots have neither, and none is kept here
                del oldest.parent.after[oldest.key]

    def _path(self, scale: float, keys: Sequence[BlockKey]) -> list[_Block]:
        path: list[_Block] = []
        block = self._roots.get(scale)
        for key in keys:
            if block is None or (block := block.after.get(key)) is None:
                break
            path.append(block)
        return path

    def _touch(self, path: Sequence[_Block]) -> None:
        # The last one first: so what follows a block is always older than the block, and goes before it.
        for block in reversed(path):
            self._used[block] = None
            self._used.move_to_end(block)

    def _flat(self, prefix: Prefix) -> list[torch.Tensor]:
        flat = [one for pair in prefix for one in pair]
        if not self._groups:  # of a model once and for all
            by_shape: dict[tuple[int, int], list[int]] = {}
            for place, one in enumerate(flat):
                by_shape.setdefault((one.shape[0], one.shape[-1]), []).append(place)
            self._groups = list(by_shape.values())
        return flat

    def _joined(self, path: Sequence[_Block]) -> Prefix:
        flat: dict[int, torch.Tensor] = {}
        for number, group in enumerate(self._groups):
            whole = torch.cat([block.pieces[number] for block in path], dim=-2)
            flat.update(zip(group, whole.unbind(), strict=True))
        return [(flat[place], flat[place + 1]) for place in range(0, len(flat), 2)]
