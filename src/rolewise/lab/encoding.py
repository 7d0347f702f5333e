"""From turns to tokens with roles, as `rolewise.render` does it: the frame takes the role of what it frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolewise.lab.rows import LabRow, Turn, Words
from rolewise.lab.vocabulary import BEGIN, CUE, END, ID, MARKS, content_ids
from rolewise.roles import Role

_HEADERS: dict[Role, Words] = {
    Role.USER: ("[MARK]", "[INST]", "[COLN]"),
    Role.DATA: ("[MARK]", "[INPT]", "[COLN]"),
    Role.OUTPUT: ("[MARK]", "[RESP]", "[COLN]"),
}


def header(role: Role, *, reserved: bool) -> Words:
    """What stands before a turn: reserved tokens, or the words that they are named after (StruQ's two templates)."""
    tokens = _HEADERS[role]
    return tokens if reserved else tuple(MARKS[token] for token in tokens)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Tokens with roles, all of one length."""

    input_ids: list[int]
    segment_ids: list[int]
    loss_mask: list[bool]


def encode_prompt(turns: Sequence[Turn], *, reserved: bool) -> Encoded:
    """The begin (SYSTEM), each turn behind its header, and the header of the answer (OUTPUT)."""
    ids, segments = [ID[BEGIN]], [int(Role.SYSTEM)]
    for turn in (*turns, Turn(role=Role.OUTPUT, words=())):
        tokens = [ID[word] for word in header(turn.role, reserved=reserved)] + content_ids(turn.words)
        ids += tokens
        segments += [int(turn.role)] * len(tokens)
    return Encoded(input_ids=ids, segment_ids=segments, loss_mask=[False] * len(ids))


def encode_row(row: LabRow, *, reserved: bool) -> Encoded:
    """A prompt with its answer and the end token, which alone are learnt."""
    prompt = encode_prompt(row.turns, reserved=reserved)
    answer = [*content_ids(row.answer), ID[END]]
    return Encoded(
        input_ids=prompt.input_ids + answer,
        segment_ids=prompt.segment_ids + [int(Role.OUTPUT)] * len(answer),
        loss_mask=prompt.loss_mask + [True] * len(answer),
    )


def encode_base(text: Words, answer: Words) -> Encoded:
    """A row of pre-training, without roles: a text, a cue, the answer."""
    prompt = [ID[BEGIN], *content_ids(text), ID[CUE]]
    target = [*content_ids(answer), ID[END]]
    return Encoded(
        input_ids=prompt + target,
        segment_ids=[int(Role.OUTPUT)] * (len(prompt) + len(target)),
        loss_mask=[False] * len(prompt) + [True] * len(target),
    )
