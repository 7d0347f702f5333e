"""One answer as it grows: which token comes next, and when it ends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from rolewise.generation import decode_answer


class PromptTooLongError(ValueError):
    """What is to be read does not fit into the model's positions."""

    def __init__(self, tokens: int, positions: int, what: str = "the prompt") -> None:
        super().__init__(f"{what} has {tokens} tokens, and the model has {positions} positions; shorten it")
        self.tokens, self.positions = tokens, positions


class NotFiniteError(ArithmeticError):
    """The model's logits are no numbers, so that no token is the likeliest."""

    def __init__(self, value: float) -> None:
        super().__init__(
            f"the model's logits are {value}: its weights are damaged, or its precision overflows; load it "
            "again, or in another dtype (such as fp32)"
        )


def require_finite(value: float) -> None:
    """Check the greatest logit of a place, which is no number if any of them is none.

    Raises:
        NotFiniteError: when it is not finite.
    """
    if not math.isfinite(value):
        raise NotFiniteError(value)


_LIKELY = 256
"""The tokens among which those that make up `top_p` are looked for first."""

Ending = Literal["stop", "settled", "max_tokens", "model_length"]
"""The model ended its turn or wrote a stop string; the outcome was settled; the tokens, or the positions, ran out."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt, and how to answer it."""

    input_ids: Sequence[int]
    segment_ids: Sequence[int]
    """The row of the segment table that each token takes."""
    max_new_tokens: int = 256
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is all."""
    seed: int | None = None
    """When sampling, makes this answer repeatable, whatever else is in its batch."""
    frequency_penalty: float = 0.0
    """Taken off a token's logit for each time that this answer has it so far (OpenAI's formula, as below)."""
    presence_penalty: float = 0.0
    """Taken off a token's logit once if this answer has it so far."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer, and are not part of it."""
    settled: Callable[[str], bool] | None = None
    """Whether nothing that follows what was written so far changes how the answer is judged, so that it may end."""
    logprobs: int | None = None
    """How many of the likeliest tokens to report for each place, besides the one taken; None reports nothing. The
    probabilities are the model's own, before temperature and penalties."""

    def __post_init__(self) -> None:
        if not self.input_ids or len(self.input_ids) != len(self.segment_ids):
            raise ValueError(
                f"a request needs a segment id for each of its tokens, got {len(self.input_ids)} tokens and "
                f"{len(self.segment_ids)} segment ids"
            )
        if self.max_new_tokens < 1 or not self.temperature >= 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens} must be at least 1, temperature={self.temperature} and "
                f"top_k={self.top_k} not negative, and top_p={self.top_p} above 0 and at most 1"
            )
        if not (math.isfinite(self.frequency_penalty) and math.isfinite(self.presence_penalty)):
            raise ValueError(
                f"frequency_penalty={self.frequency_penalty} and presence_penalty={self.presence_penalty} must be "
                "finite numbers"
            )


TokenLogprob = tuple[int, float, list[tuple[int, float]]]
"""A token, its log-probability, and the likeliest ones at its place with theirs."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model wrote."""

    text: str
    token_ids: list[int]
    """Without the token that ended the turn."""
    ending: Ending
    logprobs: list[TokenLogprob] | None = None


@dataclass
class Growing:
    """An answer under way."""

    request: Request
    tokenizer: Any
    stops: Sequence[int]
    room: int | None = None
    """How many tokens still fit into the model's positions; None when there is no limit."""
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    ending: Ending | None = None

    def __post_init__(self) -> None:
        self._counts = Counter[int]()
        self._generator: torch.Generator | None = None
        if self.request.temperature > 0:
            self._generator = torch.Generator()
            if self.request.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(self.request.seed)

    def take(self, logits: torch.Tensor, likeliest: int) -> int:
        """Choose the next token from its logits [vocabulary], of which `likeliest` is the greatest, and add it."""
        scores = self._penalised(logits)
        if self.request.temperature > 0:
            token = self.sample(scores)
        else:
            token = likeliest if scores is logits else int(scores.argmax())
        self.add(token, logits)
        return token

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        frequency, presence = self.request.frequency_penalty, self.request.presence_penalty
        if not (frequency or presence) or not self._counts:
            return logits
        places = torch.tensor(list(self._counts), device=logits.device)
        penalties = [count * frequency + presence for count in self._counts.values()]
        scores = logits.float() if logits.dtype != torch.float32 else logits.clone()
        scores[places] -= torch.tensor(penalties, device=scores.device)
        return scores

    def sample(self, logits: torch.Tensor) -> int:
        """Draw the next token from its logits [vocabulary]."""
        request = self.request
        scores = logits.float().cpu() / request.temperature
        if request.top_k:
            least = scores.topk(min(request.top_k, len(scores))).values[-1]
            scores = scores.masked_fill(scores < least, -torch.inf)
        chances = scores.softmax(-1)
        if request.top_p < 1:
            ordered, places = chances.topk(min(_LIKELY, len(chances)))
            if float(ordered.sum()) < request.top_p:  # seldom: sorting a large vocabulary takes milliseconds
                ordered, places = chances.sort(descending=True)
            wanted = ordered.cumsum(-1) - ordered < request.top_p  # the first that reaches top_p stays
            wanted[0] = True  # a top_p may be too small for these numbers
            kept = places[wanted]
            chances = torch.zeros_like(chances).scatter_(0, kept, chances[kept])
        return int(torch.multinomial(chances, 1, generator=self._generator))

    def add(self, token: int, logits: torch.Tensor) -> None:
        """Take a token, and see whether the answer ends with it."""
        request = self.request
        if request.logprobs is not None:
            chances = logits.float().log_softmax(-1)
            best = chances.topk(request.logprobs) if request.logprobs else None
            likeliest = list(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else []
            self.logprobs.append((token, float(chances[token]), likeliest))
        if token in self.stops:
            self.ending = "stop"
            return
        self.tokens.append(token)
        self._counts[token] += 1
        if request.stop or request.settled is not None:
            text = self.text()
            if any(stop in text for stop in request.stop):
                self.ending = "stop"
            elif request.settled is not None and request.settled(text):
                self.ending = "settled"
        if self.ending is None and len(self.tokens) >= request.max_new_tokens:
            self.ending = "max_tokens"
        if self.ending is None and self.room is not None and len(self.tokens) >= self.room:
            self.ending = "model_length"

    def text(self) -> str:
        """All that was written so far."""
        return decode_answer(self.tokenizer, self.tokens, ())

    def answer(self) -> Answer:
        """The finished answer."""
        assert self.ending is not None, "still growing"
        text = self.text()
        for stop in self.request.stop:
            text = text.partition(stop)[0]
        return Answer(
            text=text,
            token_ids=self.tokens,
            ending=self.ending,
            logprobs=self.logprobs if self.request.logprobs is not None else None,
        )
