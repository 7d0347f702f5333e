"""Conversations with their answers, each token with the group that it is counted under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolewise.display import token_texts
from rolewise.inspection.results import PAYLOAD
from rolewise.rendering import render
from rolewise.roles import Role, RoleScheme


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """A conversation with an answer, as the model reads it."""

    id: str
    """The sample's."""
    condition: str
    input_ids: list[int]
    segment_ids: list[int]
    queries: range
    """The positions at which the answer is written: each predicts one of its tokens."""
    groups: Mapping[str, list[int]]
    """The positions of each role's tokens, by the name of the role's row; `payload`, if any, lies within data."""


def answer_row(
    tokenizer: Any,
    row: Mapping[str, Any],
    answer: str,
    *,
    scheme: RoleScheme,
    answer_tokens: int,
) -> AnswerRow:
    """Render one condition of a sample with an answer.

    A template's own tokens (headers, ends of turns) are counted under the role that they have, as everywhere.

    Args:
        tokenizer: the model's.
        row: from `rolewise.data.structured_query.evaluation_conditions`.
        answer: what the assistant says.
        scheme: the model's.
        answer_tokens: how many tokens of the answer are read; the rest is cut off.

    Raises:
        ValueError: when the conversation cannot be rendered.
    """
    messages = [*row["messages"], {"role": "assistant", "content": answer}]
    encoding = render(tokenizer, messages, scheme=scheme, train_on="last")
    first = encoding.loss_mask.index(1)
    assert first > 0, "an answer stands behind its header"
    end = min(len(encoding.input_ids), first + sum(encoding.loss_mask), first + answer_tokens)
    ids, segments = encoding.input_ids[:end], encoding.segment_ids[:end]
    groups = {
        name: [at for at, segment in enumerate(segments) if segment == number]
        for number, name in enumerate(scheme.names)
    }
    if row["meta"]["injections"]:
        data = groups[scheme.names[scheme.row(Role.DATA)]]
        groups[PAYLOAD] = _payload_places(tokenizer, ids, data, row["meta"])
    return AnswerRow(
        id=row["meta"]["id"],
        condition=row["meta"]["condition"],
        input_ids=ids,
        segment_ids=segments,
        queries=range(first - 1, end - 1),
        groups=groups,
    )


def _payload_places(tokenizer: Any, ids: Sequence[int], data: Sequence[int], meta: Mapping[str, Any]) -> list[int]:
    """The data tokens that hold some of the payload; of an encoded payload those of all that was injected."""
    texts = token_texts(tokenizer, [ids[at] for at in data])
    whole = "".join(texts)
    wanted = (
        [meta["payload"]["text"]]
        if meta["payload"]["text"] in whole
        else [one["text"].strip() for one in meta["injections"]]
    )
    spans = [span for text in wanted for span in _occurrences(whole, text)]
    places: list[int] = []
    begin = 0
    for at, text in zip(data, texts, strict=True):
        end = begin + len(text)
        if any(begin < stop and end > start for start, stop in spans):
            places.append(at)
        begin = end
    return places


def _occurrences(text: str, part: str) -> Iterable[tuple[int, int]]:
    at = text.find(part) if part else -1
    while at >= 0:
        yield at, at + len(part)
        at = text.find(part, at + len(part))
