"""Rows of token ids with roles and labels, held compactly in memory."""

from __future__ import annotations

import hashlib
from array import array

from torch.utils.data import Dataset

from rolewise.collation import NO_LABEL, concatenate, pack_lengths


class RoleDataset(Dataset[dict[str, list[int]]]):
    """Rows of `input_ids`, `segment_ids` and `labels` in three flat arrays: six bytes a token.

    After `pack`, an item is several documents in one row and has `position_ids` too.
    """

    def __init__(self) -> None:
        self._ids = array("i")
        self._segments = bytearray()
        self._mask = bytearray()
        self._ends = array("q", [0])
        self._packed: list[list[int]] | None = None

    def append(self, input_ids: list[int], segment_ids: list[int], loss_mask: list[int]) -> None:
        """Add a row; three lists of one length."""
        assert len(input_ids) == len(segment_ids) == len(loss_mask)
        self._ids.extend(input_ids)
        self._segments.extend(segment_ids)
        self._mask.extend(loss_mask)
        self._ends.append(len(self._ids))

    def pack(self, max_length: int) -> None:
        """Let each item hold as many rows as fit into `max_length` tokens."""
        lengths = [self._ends[index + 1] - self._ends[index] for index in range(len(self._ends) - 1)]
        self._packed = pack_lengths(lengths, max_length)

    @property
    def packed(self) -> bool:
        """Whether items hold several rows."""
        return self._packed is not None

    @property
    def num_rows(self) -> int:
        """The number of conversations, packed or not."""
        return len(self._ends) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens over all rows."""
        return len(self._ids)

    @property
    def num_labelled(self) -> int:
        """Tokens that carry loss."""
        return sum(self._mask)

    def lengths(self) -> list[int]:
        """The number of tokens of each item."""
        members = self._packed or [[index] for index in range(self.num_rows)]
        return [sum(self._ends[index + 1] - self._ends[index] for index in item) for item in members]

    def fingerprint(self) -> str:
        """A digest of the rows' ids, segments and labels, in order."""
        digest = hashlib.sha256()
        for values in (self._ids, self._segments, self._mask, self._ends):
            digest.update(values)
        return digest.hexdigest()

    def __len__(self) -> int:
        return self.num_rows if self._packed is None else len(self._packed)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """Item `index`, ready for `RoleCollator`."""
        if self._packed is None:
            return self._row(index)
        return concatenate([self._row(member) for member in self._packed[index]])

    def _row(self, index: int) -> dict[str, list[int]]:
        start, end = self._ends[index], self._ends[index + 1]
        ids = self._ids[start:end].tolist()
        mask = self._mask[start:end]
        return {
            "input_ids": ids,
            "segment_ids": list(self._segments[start:end]),
            "labels": [token if labelled else NO_LABEL for token, labelled in zip(ids, mask, strict=True)],
        }
