"""A model whose answers a test gives, in the loop of an agent; needs inspect_ai."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inspect_ai.model import Model, get_model

import rolewise as rw
from rolewise.engine.decoding import Answer, Request
from rolewise.evaluation.provider import RolewiseAPI
from rolewise.roles import Role
from tests.models import plain_model


def save_model(directory: Path, tokenizer: Any) -> Path:
    """A tiny random model with many positions."""
    model = rw.attach(plain_model("qwen3", vocab=len(tokenizer)), init_ratio=1.0)
    model.config.max_position_embeddings = 200_000
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def model_of(directory: Path, **arguments: Any) -> Model:
    """The model in a directory, as inspect_ai has it."""
    return get_model(f"rolewise/{directory}", memoize=False, **arguments)


class Script:
    """Answers given in turn, in place of the engine's; keeps what was asked."""

    def __init__(self, model: Model, answers: Sequence[str]) -> None:
        assert isinstance(model.api, RolewiseAPI)
        self.api, self.answers, self.asked = model.api, list(answers), list[Request]()
        model.api.engine.answers = self.answer  # type: ignore[method-assign]

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Answer]]:
        for index, request in enumerate(requests):
            self.asked.append(request)
            text = self.answers[len(self.asked) - 1]
            ids = self.api.tokenizer.encode(text, add_special_tokens=False)
            plain = self.api.tokenizer.decode(ids, skip_special_tokens=True)
            yield index, Answer(text=plain, token_ids=ids, ending="stop")

    def told(self, number: int, role: Role) -> str:
        """What stood in a prompt with a role."""
        request = self.asked[number]
        pairs = zip(request.input_ids, request.segment_ids, strict=True)
        return str(self.api.tokenizer.decode([token for token, segment in pairs if segment == role]))
