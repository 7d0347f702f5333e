"""Requests for the continuous engine, what it tells of them, and what each should get, for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from rolewise.engine.continuous import ContinuousEngine
from rolewise.engine.decoding import Request
from rolewise.engine.rows import Row
from rolewise.modeling import SegmentedCausalLM

NEW = 12
Prompt = tuple[list[int], list[int]]


@dataclass
class Heard:
    """What an engine told of each row."""

    tokens: dict[Row, list[int]] = field(default_factory=dict)
    ended: dict[Row, Any] = field(default_factory=dict)
    logprobs: dict[Row, list[Any]] = field(default_factory=dict)

    def step(self, engine: ContinuousEngine) -> None:
        for written in engine.step():
            for one in written:
                assert one.row not in self.ended, "a row that had ended was written on"
                self.tokens.setdefault(one.row, []).extend(one.token_ids)
                self.logprobs.setdefault(one.row, []).extend(one.logprobs or [])
                assert one.logprobs is None or len(one.logprobs) == len(one.token_ids)
                if one.last:
                    self.ended[one.row] = one.error or one.ending

    def run(self, engine: ContinuousEngine) -> None:
        for _ in range(10_000):
            if not engine.busy:
                return
            self.step(engine)
        raise AssertionError("the engine goes on for ever")


def prompt_of(rng: random.Random, length: int, begin: Prompt = ([], [])) -> Prompt:
    ids, segments = begin
    return (
        [*ids, *(rng.randrange(3, 250) for _ in range(length))],
        [*segments, *(rng.randrange(4) for _ in range(length))],
    )


def asked(prompt: Prompt, **options: Any) -> Request:
    options = {"max_new_tokens": NEW, **options}
    return Request(input_ids=prompt[0], segment_ids=prompt[1], **options)


def answers(
    engine: ContinuousEngine, prompts: list[Prompt], scale: float | None = None, **options: Any
) -> list[list[int]]:
    heard = Heard()
    asked_rows = [engine.row(asked(prompt, **options), scale) for prompt in prompts]
    for row in asked_rows:
        engine.submit(row)
    heard.run(engine)
    return [heard.tokens[row] for row in asked_rows]


def alone(model: SegmentedCausalLM, prompt: Prompt, stops: list[int], new: int = NEW) -> list[int]:
    """What `model.generate` writes, the token that ends the turn left out."""
    ids, segments = (torch.tensor([column]) for column in prompt)
    output = model.generate(
        input_ids=ids, segment_ids=segments, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new,
        eos_token_id=stops, pad_token_id=0,
    )[0, ids.shape[1] :].tolist()  # fmt: skip
    return output[:-1] if output and output[-1] in stops else output
