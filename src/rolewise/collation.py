"""Rows of token ids with roles -> batches: padding on either side, and packing of several rows into one.

A feature is a mapping with `input_ids`, `segment_ids` and `labels`, three lists of one length (labels already hold
-100 where there is no loss). Its neighbours in some packing code call document numbers "segment ids"; here the
segment id is always the row of the segment table, and documents are told apart by `position_ids`.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rolewise.roles import DEFAULT_SCHEME, RoleScheme, require_scheme

if TYPE_CHECKING:
    import torch

Feature = Mapping[str, Any]

NO_LABEL = -100
_LINEAR_COST = 3456
_COLUMNS = ("input_ids", "segment_ids", "labels")


@dataclass(frozen=True, kw_only=True)
class RoleCollator:
    """Turn a list of features into one batch of tensors.

    Returns `input_ids`, `segment_ids` and `labels`, each [batch, seq], with `attention_mask` [batch, seq], or with
    `position_ids` [batch, seq] for packed features: transformers derives block-diagonal attention from positions
    that start anew, as long as there is no attention mask. Padding has label -100 and segment OUTPUT.

    Raises:
        ValueError: when a feature has no row ids, or its columns differ in length.
    """

    pad_token_id: int
    """The token that fills short rows; no loss and no attention ever falls on it."""
    scheme: RoleScheme = DEFAULT_SCHEME
    """Which row of the table is OUTPUT, for the padding."""
    padding_side: Literal["left", "right"] = "right"
    """Where short rows are filled; packed rows are always filled on the right."""
    packed: bool = False
    """Whether the features come from `pack`."""
    padding_free: bool = False
    """Lay unpacked rows end to end in one row, [1, sum of lengths], wherever that is less work than padding them; for
    architectures that keep packed documents apart (`rolewise.training.packing.separates_documents`)."""
    pad_to_multiple_of: int | None = None
    """Round the batch's length up to a multiple of this, for hardware that likes it."""

    def __post_init__(self) -> None:
        require_scheme(self.scheme)
        if self.padding_side not in ("left", "right"):
            raise ValueError(f"padding_side={self.padding_side!r} must be 'left' or 'right'")
        if (self.packed or self.padding_free) and self.padding_side == "left":
            raise ValueError("packed and padding-free rows are padded on the right; leave padding_side='right'")

    def __call__(self, features: Sequence[Feature]) -> dict[str, torch.Tensor]:
        """Collate `features` into a batch."""
        import torch

        if not features:
            raise ValueError("cannot make a batch of no rows")
        rows = [_checked(feature, index) for index, feature in enumerate(features)]
        packed = self.packed
        if self.padding_free and _joining_is_cheaper([len(row["input_ids"]) for row in rows]):
            rows, packed = [concatenate(rows)], True
        length = max(len(row["input_ids"]) for row in rows)
        if self.pad_to_multiple_of:
            length += -length % self.pad_to_multiple_of
        fills = {"input_ids": self.pad_token_id, "segment_ids": self.scheme.output, "labels": NO_LABEL}
        batch = {
            name: torch.tensor([self._padded(row[name], length, fill) for row in rows], dtype=torch.long)
            for name, fill in fills.items()
        }
        if packed:
            # The padding counts from 0, so it is a document of its own that no real token attends to.
            batch["position_ids"] = torch.tensor(
                [[*_positions(row), *range(length - len(row["input_ids"]))] for row in rows], dtype=torch.long
            )
        else:
            batch["attention_mask"] = torch.tensor(
                [self._padded([1] * len(row["input_ids"]), length, 0) for row in rows], dtype=torch.long
            )
        return batch

    def _padded(self, values: Sequence[int], length: int, fill: int) -> list[int]:
        padding = [fill] * (length - len(values))
        return [*values, *padding] if self.padding_side == "right" else [*padding, *values]


def pack(features: Sequence[Feature], max_length: int) -> list[dict[str, list[int]]]:
    """Put several rows into one, up to `max_length` tokens, wasting as little as best-fit-decreasing does.

    Each document keeps its segments, its labels and positions that start at 0. The first label of a document is
    -100: the token before it belongs to another one.

    Args:
        features: rows with `input_ids`, `segment_ids` and `labels`.
        max_length: the most tokens of a packed row.

    Returns:
        Packed rows with `position_ids` too, the same for the same input.

    Raises:
        ValueError: when a row is longer than `max_length`; it is never cut.
    """
    rows = [_checked(feature, index) for index, feature in enumerate(features)]
    for index, row in enumerate(rows):
        if len(row["input_ids"]) > max_length:
            raise ValueError(
                f"row {index} has {len(row['input_ids'])} tokens and cannot be packed into max_length={max_length}; "
                "raise max_length, or shorten the row with overflow='truncate_data'"
            )
    bins = pack_lengths([len(row["input_ids"]) for row in rows], max_length)
    return [concatenate([rows[index] for index in members]) for members in bins]


def pack_lengths(lengths: Sequence[int], max_length: int) -> list[list[int]]:
    """Which rows share a packed row: best fit, longest first; members and packed rows in the order of the rows."""
    assert all(length <= max_length for length in lengths)
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (tokens left, bin), sorted
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        at = bisect.bisect_left(room, (lengths[index], -1))
        if at == len(room):
            bins.append([index])
            left, where = max_length - lengths[index], len(bins) - 1
        else:
            left, where = room.pop(at)
            bins[where].append(index)
            left -= lengths[index]
        bisect.insort(room, (left, where))
    return sorted(sorted(members) for members in bins)


def concatenate(documents: Sequence[Feature]) -> dict[str, list[int]]:
    """One packed row of `documents`; see `pack`."""
    packed: dict[str, list[int]] = {name: [] for name in (*_COLUMNS, "position_ids")}
    for document in documents:
        packed["input_ids"] += document["input_ids"]
        packed["segment_ids"] += document["segment_ids"]
        packed["labels"] += [NO_LABEL, *document["labels"][1:]]
        packed["position_ids"] += _positions(document)
    return packed


def _joining_is_cheaper(lengths: Sequence[int]) -> bool:
    """Whether one row of the sum of `lengths` is less work than rows padded to the longest.

    A token costs the matrix products of its layer, and attention over its row, masked or not: a row of length L costs
    L * (a + L), where a is about 6 times the hidden size, 3,456 for SmolLM2-135M and more for larger models.
    """
    total, longest = sum(lengths), max(lengths)
    return total * (_LINEAR_COST + total) < len(lengths) * longest * (_LINEAR_COST + longest)


def _positions(row: Feature) -> Sequence[int]:
    return row["position_ids"] if "position_ids" in row else range(len(row["input_ids"]))


def _checked(feature: Feature, index: int) -> Feature:
    """The columns of a feature that can be used, as lists (data sets in numpy or torch format have arrays)."""
    for name in _COLUMNS:
        if name not in feature:
            raise ValueError(
                f"row {index} has no {name}, only {sorted(feature)}; make rows with rolewise.render "
                "(or rolewise.training.to_trl_rows), and keep the trainer from dropping columns "
                "(remove_unused_columns=False)"
            )
    columns = {name: feature[name] for name in (*_COLUMNS, "position_ids") if name in feature}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or not lengths["input_ids"]:
        raise ValueError(f"row {index}: its columns must have one length above 0, but have {lengths}")
    return {name: values.tolist() if hasattr(values, "tolist") else values for name, values in columns.items()}
