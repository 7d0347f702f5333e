"""The same passage as the user's words and as data: conversations in which nothing but the role tells the two apart.

Two passages share a conversation, one in the user's turn and one in the data's. They are exchanged, and the turns are
put in either order: four conversations a pair, in which each passage stands in each role at each place, behind the
same neighbour. Content, place and neighbour are so balanced that they say nothing of the role. What is left is the
template's headers, the segments, and, where two headers differ in length, a few tokens of position (`position_shift`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rolewise.rendering import render
from rolewise.rendering.encoding import workshop
from rolewise.roles import Role, RoleScheme
from rolewise.samples import Sample

LENGTH = 160
"""The most characters of a passage (some 35 tokens of English)."""
MOST = 32
"""The most pairs: their hidden states of all layers are in memory together."""
_LEAST = 12


@dataclass(frozen=True, kw_only=True)
class PassagePair:
    """Two passages of about one length."""

    id: str
    """The samples that they are from."""
    texts: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class TwinRow:
    """One of a pair's four conversations."""

    input_ids: list[int]
    segment_ids: list[int]
    """As rendered."""
    swapped_ids: list[int]
    """The same with the segments of the two passages exchanged; the template's tokens keep theirs."""
    places: list[int]
    """The positions of the passages' tokens."""
    user: list[bool]
    """Whether each of these stands in the user's turn."""


def passage_pairs(samples: Iterable[Sample]) -> list[PassagePair]:
    """Pairs of passages from the samples' data, of like length; which ones does not depend on a model.

    A passage is the beginning of the data, with its white space as single spaces. Short and repeated ones are left
    out, and an odd one.
    """
    passages: dict[str, str] = {}
    for sample in samples:
        text = _cut(" ".join(sample.data.split()))
        if len(text) >= _LEAST:
            passages.setdefault(text, sample.id)
    ordered = sorted(passages.items(), key=lambda one: (len(one[0]), one[1]))
    pairs = [
        PassagePair(id=f"{first_id}+{second_id}", texts=(first, second))
        for (first, first_id), (second, second_id) in zip(ordered[::2], ordered[1::2], strict=False)
    ]
    # Of many, some of each length.
    return pairs if len(pairs) <= MOST else [pairs[number * len(pairs) // MOST] for number in range(MOST)]


def _cut(text: str) -> str:
    if len(text) <= LENGTH:
        return text
    space = text.rfind(" ", LENGTH // 2, LENGTH + 1)
    return text[: space if space > 0 else LENGTH].rstrip()


def twin_rows(tokenizer: Any, pair: PassagePair, scheme: RoleScheme) -> list[TwinRow]:
    """The four conversations of a pair.

    Raises:
        ValueError: when the template takes no data before a question, or changes a passage's tokens.
    """
    first, second = pair.texts
    layouts = [("user", first, second), ("user", second, first), ("data", first, second), ("data", second, first)]
    return [_twin_row(tokenizer, scheme, *layout) for layout in layouts]


def _twin_row(tokenizer: Any, scheme: RoleScheme, opening: str, first: str, second: str) -> TwinRow:
    kinds = (opening, "data" if opening == "user" else "user")
    messages = [{"role": kind, "content": text} for kind, text in zip(kinds, (first, second), strict=True)]
    try:
        encoding = render(tokenizer, messages, scheme=scheme)
    except ValueError as error:
        raise ValueError(
            f"the probe needs the user's turn and the data in either order, which this chat template does not take "
            f"({error}); leave the probe out (--parts attention)"
        ) from error
    encoder = workshop(tokenizer).encoder
    ids, segments = encoding.input_ids, encoding.segment_ids
    exchanged = {scheme.row(Role.USER): scheme.row(Role.DATA), scheme.row(Role.DATA): scheme.row(Role.USER)}
    swapped, places, user = list(segments), list[int](), list[bool]()
    after = 0
    for kind, text in zip(kinds, (first, second), strict=True):
        content = encoder.content(text, "passage")
        begin = _find(ids, content, after)
        after = begin + len(content)
        for at in range(begin, after):
            swapped[at] = exchanged[segments[at]]
            places.append(at)
            user.append(kind == "user")
    return TwinRow(input_ids=ids, segment_ids=segments, swapped_ids=swapped, places=places, user=user)


def _find(ids: Sequence[int], part: Sequence[int], after: int) -> int:
    for at in range(after, len(ids) - len(part) + 1):
        if ids[at : at + len(part)] == part:
            return at
    raise ValueError(
        "a passage's tokens are not in the rendered conversation as they are alone, so they cannot be followed from "
        "role to role; leave the probe out (--parts attention)"
    )


def position_shift(rows: Sequence[TwinRow]) -> int:
    """By how many tokens, at most, a passage's place differs between its two roles in turns of the same order."""
    assert len(rows) == 4, "a pair has four conversations"
    # Two open with the user's turn, two with the data; the same passage stands first in 0 and 2, and in 1 and 3.
    shifts = [
        abs(one - other)
        for here, there in ((rows[0], rows[2]), (rows[1], rows[3]))
        for one, other in zip(here.places, there.places, strict=True)
    ]
    return max(shifts)
