"""The store of prefixes against a plain model of it: what is found is what was put, by ids, roles and scale."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolewise.engine.kv import Prefix
from rolewise.engine.store import BLOCK, PrefixStore, block_keys

Row = tuple[float, tuple[int, ...], tuple[int, ...]]
"""Scale, ids and segments; a letter stands for a block."""


def prefix_of(row: Row) -> Prefix:
    """Keys and values that tell a position's whole past; layers differ in shape."""
    scale, ids, segments = row
    marks = torch.tensor([float(hash((scale, ids[: at + 1], segments[: at + 1])) % 65521) for at in range(len(ids))])
    wide, narrow = marks.expand(2, -1)[..., None], marks.expand(1, -1)[..., None].expand(-1, -1, 3)
    return [(wide, -wide), (narrow, narrow)]


def rows() -> st.SearchStrategy[Row]:
    blocks = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1])), min_size=0, max_size=4)

    def row(scale: float, blocks: list[tuple[str, int]], rest: int) -> Row:
        ids = [ord(letter) for letter, _ in blocks for _ in range(BLOCK)] + [7] * rest
        segments = [role for _, role in blocks for _ in range(BLOCK)] + [0] * rest
        return scale, tuple(ids), tuple(segments)

    return st.builds(row, st.sampled_from([0.0, 1.0]), blocks, st.integers(0, BLOCK - 1))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), rows()), max_size=20), st.sampled_from([0, 2, 5, 100]))
def test_what_is_found_was_computed_for_just_this_past(steps: list[tuple[bool, Row]], room: int) -> None:
    store = PrefixStore(room * BLOCK)
    put: set[Row] = set()
    for puts, row in steps:
        scale, ids, segments = row
        keys = block_keys(ids, segments)
        if puts:
            store.put(scale, keys, prefix_of(row))
            put |= {(scale, ids[:end], segments[:end]) for end in range(BLOCK, len(ids) + 1, BLOCK)}
            assert store.known(scale, keys) == min(len(keys), room) * BLOCK, "what is newest is not kept"
        known, found = store.find(scale, keys, len(ids))
        assert known == store.known(scale, keys)
        assert store.tokens <= store.room == room * BLOCK
        assert (found is None) == (known == 0)
        if found is not None:
            assert (scale, ids[:known], segments[:known]) in put
            for pair, expected in zip(found, prefix_of(row), strict=True):
                for one, other in zip(pair, expected, strict=True):
                    assert torch.equal(one, other[:, :known])
        if room == 100:
            ends = range(BLOCK, len(ids) + 1, BLOCK)
            assert known == max((end for end in ends if (scale, ids[:end], segments[:end]) in put), default=0)


def test_what_is_used_stays_and_what_is_not_goes() -> None:
    store = PrefixStore(3 * BLOCK + 5)
    one, two, three, four = (block_keys([number] * BLOCK, [0] * BLOCK) for number in range(4))
    prefix: Prefix = [(torch.zeros(1, BLOCK, 2), torch.zeros(1, BLOCK, 2))]
    for keys in (one, two, three):
        store.put(1.0, keys, prefix)
    assert store.find(1.0, one, BLOCK)[0] == BLOCK
    assert store.find(1.0, one, BLOCK - 1) == (0, None)
    store.put(1.0, four, prefix)
    assert [store.known(1.0, keys) for keys in (one, two, three, four)] == [BLOCK, 0, BLOCK, BLOCK]
    with pytest.raises(ValueError, match="cache_tokens=-1"):
        PrefixStore(-1)
