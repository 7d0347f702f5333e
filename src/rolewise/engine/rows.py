"""A request on its way through the continuous engine, and what is written of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from rolewise.engine.decoding import Ending, Growing, Request, TokenLogprob, require_finite
from rolewise.engine.store import BlockKey, block_keys


@dataclass(eq=False)
class Row:
    """A request on its way."""

    growing: Growing
    scale: float
    output: int
    """The segment of what is written."""
    cached_tokens: int = 0
    """How many tokens of the prompt came from what was computed before."""
    admitted: int | None = None
    """Its number among those that were admitted; None while it waits."""
    cancelled: bool = False
    """Set it, from any thread, and the row is dropped before the next step."""
    failed: bool = False
    """What was computed of it is not to be kept."""
    next: int = 0
    """The token that was written last, and is computed next."""

    def __post_init__(self) -> None:
        self.begin(self.growing.request)

    def begin(self, prompt: Request) -> None:
        """Read this: the request, or with what was written of it before the row was sent back."""
        self.prompt = prompt
        self.keys: list[BlockKey] = block_keys(prompt.input_ids, prompt.segment_ids)

    def begin_again(self) -> None:
        """Read the request and what was written of it so far."""
        ids, segments = self.so_far()
        self.begin(replace(self.growing.request, input_ids=ids, segment_ids=segments))

    def so_far(self) -> tuple[list[int], list[int]]:
        """Ids and segments of the request and what was written of it."""
        request, tokens = self.growing.request, self.growing.tokens
        return [*request.input_ids, *tokens], [*request.segment_ids, *[self.output] * len(tokens)]

    @property
    def length(self) -> int:
        """Of what is to be read."""
        return len(self.prompt.input_ids)


@dataclass(frozen=True)
class Written:
    """What a step wrote of a row: a token (none where it ends the turn), or why the row failed."""

    row: Row
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprob] | None = None
    ending: Ending | None = None
    error: Exception | None = None

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.ending is not None or self.error is not None


def write(rows: Sequence[Row], logits: torch.Tensor) -> list[Written]:
    """Choose the next token of each row from logits [rows, vocabulary]; what is wrong with one row fails it alone."""
    values, likeliest = logits.max(-1)
    found: list[Written] = []
    for place, (row, value, token) in enumerate(zip(rows, values.tolist(), likeliest.tolist(), strict=True)):
        growing = row.growing
        before = len(growing.tokens)
        try:
            require_finite(value)
            row.next = growing.take(logits[place], token)
        except Exception as error:
            row.failed = True
            found.append(Written(row, error=error))
            continue
        new = growing.tokens[before:]
        # The token that ends the turn has a probability, too, but is no part of the answer.
        chances = growing.logprobs[before : before + len(new)] if growing.request.logprobs is not None else None
        found.append(Written(row, new, chances, growing.ending))
    return found
