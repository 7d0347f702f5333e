"""Requests equal in text and different in roles, through the whole server: nothing of one reaches the other."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.modeling import SegmentedCausalLM
from rolewise.rendering import control_token_ids
from rolewise.roles import DEFAULT_SCHEME, RoleScheme
from rolewise.serving.answering import Sampling
from rolewise.serving.local import LocalBackend

from .models import plain_model
from .serving_fakes import answering
from .training_model import tiny_tokenizer

SCHEMES = {
    "four rows": DEFAULT_SCHEME,
    "system and user share a row": RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2)),
    "user and data share a row": RoleScheme(names=("system", "rest", "output"), rows=(0, 1, 1, 2)),
}
TYPED = ("<|im_end|>", "<|im_start|>system\n", "<|im_start|>assistant\n", "<|endoftext|>", "\u202e", " ", "\n", "é🙂")


def conversations(rng: random.Random) -> list[list[dict[str, Any]]]:
    """The same words in parts that are the user's, or data, in every way; long enough for several blocks."""
    words = [" ".join(rng.choices(("red", "cat", "tree", "count the", *TYPED), k=18)) for _ in range(3)]
    kinds = [("text", "data")[rng.randrange(2)] for _ in words]
    found: list[list[dict[str, Any]]] = []
    for flipped in range(-1, len(words)):
        chosen = [("data" if one == "text" else "text") if at == flipped else one for at, one in enumerate(kinds)]
        parts = [{"type": kind, "text": text} for kind, text in zip(chosen, words, strict=True)]
        found.append([{"role": "system", "content": "copy"}, {"role": "user", "content": parts}])
    return found


@pytest.mark.parametrize("name", SCHEMES)
def test_equal_texts_in_other_roles_get_the_answers_that_they_get_alone(name: str) -> None:
    tokenizer = tiny_tokenizer()
    scheme = SCHEMES[name]
    model: SegmentedCausalLM = rw.attach(plain_model("qwen3", vocab=len(tokenizer)), scheme=scheme, init_ratio=2.0)
    model.config.max_position_embeddings = 2048
    control = control_token_ids(tokenizer)
    asked = [one for seed in range(4) for one in conversations(random.Random(f"{name} {seed}"))]

    def alone(ids: list[int], segments: list[int], stops: list[int]) -> list[tuple[int, float]]:
        """Without a cache, and without the engine."""
        written: list[int] = []
        found: list[tuple[int, float]] = []
        while len(written) < 6:
            with torch.no_grad():
                logits = model(
                    input_ids=torch.tensor([[*ids, *written]]),
                    segment_ids=torch.tensor([[*segments, *[scheme.output] * len(written)]]), use_cache=False,
                ).logits  # fmt: skip
            if (token := int(logits[0, -1].argmax())) in stops:
                break
            written.append(token)
            found.append((token, float(logits[0, -1].log_softmax(-1)[token])))
        return found

    async def work() -> None:
        backend = LocalBackend(model, tokenizer, max_running=6, chunk_tokens=64)
        front = answering(backend)
        await backend.start()

        async def one(messages: list[dict[str, Any]]) -> tuple[Any, list[tuple[int, float]], int]:
            prompt = await front.render(messages)
            pieces = []
            async with contextlib.aclosing(front.stream(prompt, Sampling(max_tokens=6, logprobs=0))) as stream:
                async for piece in stream:
                    pieces.append(piece)
            tokens = [(token.id, token.logprob or 0.0) for piece in pieces for token in piece.tokens]
            return prompt, tokens, pieces[-1].cached_tokens

        try:
            together = await asyncio.gather(*(one(messages) for messages in asked))
            again = [await one(messages) for messages in reversed(asked)]
        finally:
            await backend.close()
        assert sum(cached > 0 for _, _, cached in again) == len(asked), "nothing was used again, so this shows nothing"
        first: dict[Any, list[tuple[int, float]]] = {}
        states: set[Any] = set()
        for prompt, written, _ in [*together, *again]:
            key = (tuple(prompt.input_ids), tuple(prompt.segment_ids))
            states.add(key)
            if key not in first:
                first[key] = alone(prompt.input_ids, prompt.segment_ids, backend._engine.reader.stops)
            assert [token for token, _ in written] == [token for token, _ in first[key]]
            assert [chance for _, chance in written] == pytest.approx([chance for _, chance in first[key]], abs=1e-4)
            frame = await front.render([{"role": "system", "content": "copy"}, {"role": "user", "content": "x"}])
            assert sum(token in control for token in prompt.input_ids) == sum(
                token in control for token in frame.input_ids
            ), "a client's text became a control token"
        texts = {ids for ids, _ in states}
        assert (len(states) == len(texts)) == (name == "user and data share a row")
        for (ids, _), mine in first.items():
            for (others, _), other in first.items():
                if other is not mine and others == ids:
                    assert abs(mine[0][1] - other[0][1]) > 1e-3, "roles make no difference that would be seen"

    asyncio.run(work())
