"""Packed ids carry a token and its role, both ways; what is not one of them is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rolewise as rw
from rolewise.roles import Role, RoleScheme
from rolewise.serving import PackedIds
from tests.training_model import tiny_tokenizer

SCHEMES = [
    RoleScheme(),
    RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2)),
    RoleScheme(names=("output", "others"), rows=(1, 1, 1, 0)),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: "-".join(scheme.names))
@given(data=st.data())
def test_unpacking_gives_back_what_was_packed(scheme: RoleScheme, data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 300_000))
    packing = PackedIds(vocab, scheme)
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, vocab - 1), st.integers(0, scheme.num_segments - 1)), min_size=1, max_size=20)
    )
    ids, segments = [token for token, _ in pairs], [segment for _, segment in pairs]
    if set(segments) == {scheme.output}:
        with pytest.raises(ValueError, match="plain token ids"):
            packing.pack(ids, segments)
        return
    packed = packing.pack(ids, segments)
    assert packing.unpack(packed) == (ids, segments)
    assert all((one < vocab) == (segment == scheme.output) for one, segment in zip(packed, segments, strict=True))


def test_the_default_scheme_has_the_documented_blocks() -> None:
    packing = PackedIds(100, RoleScheme())
    blocks = {role: packing.pack([7, 7], [int(role), 0])[0] // 100 for role in Role}
    assert blocks == {Role.OUTPUT: 0, Role.DATA: 1, Role.USER: 2, Role.SYSTEM: 3}


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        ([], "empty"),
        ([1, 2, 3], "plain token ids"),
        ([-1, 150], r"prompt\[0\] is -1"),
        ([150, 400], r"prompt\[1\] is 400"),
    ],
)
def test_a_prompt_without_roles_or_out_of_range_is_refused(packed: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PackedIds(100, RoleScheme()).unpack(packed)


@pytest.mark.parametrize(
    ("ids", "segments", "said"),
    [
        ([1], [0, 1], "1 tokens have 2"),
        ([100], [0], r"input_ids\[0\] is 100"),
        ([-1], [0], r"input_ids\[0\] is -1"),
        ([1], [4], r"segment_ids\[0\] is 4"),
    ],
)
def test_what_cannot_be_packed_is_named(ids: list[int], segments: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PackedIds(100, RoleScheme()).pack(ids, segments)


def test_a_rendered_conversation_survives_packing() -> None:
    tokenizer = tiny_tokenizer()
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "data", "content": "d"}]
    encoding = rw.render(tokenizer, messages, add_generation_prompt=True)
    packing = PackedIds(len(tokenizer), RoleScheme())
    assert packing.unpack(packing.pack(encoding.input_ids, encoding.segment_ids)) == (
        encoding.input_ids, encoding.segment_ids,
    )  # fmt: skip
