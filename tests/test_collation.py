"""Padding and packing of rows with roles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolewise.collation import RoleCollator, pack
from rolewise.roles import Role, RoleScheme
from tests.training_rows import random_rows

A = {"input_ids": [5, 6, 7], "segment_ids": [0, 1, 3], "labels": [-100, -100, 7]}
B = {"input_ids": [8], "segment_ids": [2], "labels": [8]}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_output_without_loss_or_attention(side: str) -> None:
    batch = RoleCollator(pad_token_id=9, padding_side=side)([A, B])  # type: ignore[arg-type]
    at = slice(None, None, 1 if side == "right" else -1)
    assert {name: tensor[1].tolist()[at] for name, tensor in batch.items()} == {
        "input_ids": [8, 9, 9],
        "segment_ids": [2, 3, 3],
        "labels": [8, -100, -100],
        "attention_mask": [1, 0, 0],
    }
    assert batch["input_ids"][0].tolist() == A["input_ids"]
    assert batch["segment_ids"][0].tolist() == A["segment_ids"]


def test_padding_uses_the_schemes_output_row() -> None:
    scheme = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    batch = RoleCollator(pad_token_id=0, scheme=scheme, pad_to_multiple_of=8)([A])
    assert batch["segment_ids"].shape == (1, 8)
    assert batch["segment_ids"][0, 3:].tolist() == [scheme.row(Role.OUTPUT)] * 5


@pytest.mark.parametrize("options", [{}, {"padding_free": True}, {"packed": True}])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_rows_may_be_arrays(kind: Any, options: dict[str, bool]) -> None:
    long = {"input_ids": [1] * 9, "segment_ids": [0] * 9, "labels": [1] * 9}
    as_lists = [A, B, long]
    as_arrays = [{name: kind(values) for name, values in row.items()} for row in as_lists]
    collator = RoleCollator(pad_token_id=0, **options)
    want, found = collator(as_lists), collator(as_arrays)
    assert want.keys() == found.keys()
    assert all(torch.equal(want[name], found[name]) for name in want)
    assert pack(as_arrays, 16) == pack(as_lists, 16)


def test_packing_keeps_documents_apart() -> None:
    (packed,) = pack([A, B], 8)
    assert packed == {
        "input_ids": [5, 6, 7, 8],
        "segment_ids": [0, 1, 3, 2],
        "labels": [-100, -100, 7, -100],  # B's only token has no predecessor in B
        "position_ids": [0, 1, 2, 0],
    }
    batch = RoleCollator(pad_token_id=9, packed=True, pad_to_multiple_of=6)([packed])
    assert "attention_mask" not in batch
    assert batch["position_ids"][0].tolist() == [0, 1, 2, 0, 0, 1]


def test_padding_free_rows_lie_end_to_end() -> None:
    joined = RoleCollator(pad_token_id=9, padding_free=True)([A, B])
    assert {name: tensor.tolist() for name, tensor in joined.items()} == {
        "input_ids": [[5, 6, 7, 8]],
        "segment_ids": [[0, 1, 3, 2]],
        "labels": [[-100, -100, 7, -100]],
        "position_ids": [[0, 1, 2, 0]],
    }


@pytest.mark.parametrize(("lengths", "joined"), [((300, 40), True), ((300, 300), False), ((4000, 3500), False)])
def test_rows_are_padded_where_attention_over_one_long_row_costs_more(lengths: tuple[int, ...], joined: bool) -> None:
    rows = [{"input_ids": [1] * n, "segment_ids": [0] * n, "labels": [1] * n} for n in lengths]
    batch = RoleCollator(pad_token_id=9, padding_free=True)(rows)
    assert tuple(batch["input_ids"].shape) == ((1, sum(lengths)) if joined else (len(lengths), max(lengths)))
    assert ("attention_mask" in batch) is not joined


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_packing_loses_nothing(lengths: list[int]) -> None:
    rows = [
        {"input_ids": [index] * length, "segment_ids": [index % 4] * length, "labels": [index] * length}
        for index, length in enumerate(lengths)
    ]
    packed = pack(rows, 30)
    seen: dict[int, int] = {}
    for row in packed:
        assert len(row["input_ids"]) <= 30
        starts = [at for at, position in enumerate(row["position_ids"]) if position == 0]
        for start, end in zip(starts, [*starts[1:], len(row["input_ids"])], strict=True):
            index = row["input_ids"][start]
            assert row["input_ids"][start:end] == [index] * lengths[index]
            assert row["segment_ids"][start:end] == [index % 4] * lengths[index]
            assert row["labels"][start:end] == [-100] + [index] * (lengths[index] - 1)
            assert row["position_ids"][start:end] == list(range(lengths[index]))
            seen[index] = seen.get(index, 0) + 1
    assert seen == dict.fromkeys(range(len(lengths)), 1)
    assert sum(map(bool, packed)) <= len(rows)


def test_best_fit_fills_rows() -> None:
    rows = random_rows(64, longest=6)
    packed = pack(rows, 48)
    tokens = sum(len(row["input_ids"]) for row in rows)
    assert tokens / (48 * len(packed)) > 0.9


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"row 0 has 3 tokens.*max_length=2.*truncate_data"):
        pack([A], 2)
    with pytest.raises(ValueError, match="row 1 has no segment_ids"):
        RoleCollator(pad_token_id=0)([A, {"input_ids": [1], "labels": [1]}])
    with pytest.raises(ValueError, match="row 0: its columns must have one length"):
        RoleCollator(pad_token_id=0)([{**A, "segment_ids": [1]}])
    with pytest.raises(ValueError, match="no rows"):
        RoleCollator(pad_token_id=0)([])
    with pytest.raises(ValueError, match="padding_side='both'"):
        RoleCollator(pad_token_id=0, padding_side="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="padding_side='right'"):
        RoleCollator(pad_token_id=0, padding_side="left", padding_free=True)
