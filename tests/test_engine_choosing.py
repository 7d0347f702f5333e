"""How tokens are chosen: seeds, penalties, log-probabilities, the scale."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.engine.batches import Engine
from rolewise.engine.continuous import ContinuousEngine
from rolewise.modeling import SegmentedCausalLM

from .engine_rows import Heard, answers, asked, prompt_of
from .models import plain_model, tiny_model


def test_samples_depend_on_the_seed_and_not_on_the_company(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(9)
    prompts = [prompt_of(rng, rng.randrange(1, 50)) for _ in range(5)]
    options = {"temperature": 1.0, "top_p": 0.9, "top_k": 50}

    def by(engine: ContinuousEngine, seed: int) -> list[list[int]]:
        return answers(engine, prompts, seed=seed, **options)

    together = by(ContinuousEngine(llama, tokenizer), 1)
    assert by(ContinuousEngine(llama, tokenizer, max_running=1, cache_tokens=0), 1) == together
    assert by(ContinuousEngine(llama, tokenizer), 2) != together


@pytest.mark.parametrize("make", [ContinuousEngine, Engine])
def test_penalties_are_openais(make: Callable[..., Any], llama: SegmentedCausalLM, tokenizer: Any) -> None:
    """logit - count * frequency - (count > 0) * presence, of the tokens written so far, none of the prompt's."""
    prompt, new = prompt_of(random.Random(19), 12), 24
    engine = make(llama, tokenizer)

    def got(**penalties: float) -> list[int]:
        request = asked(prompt, max_new_tokens=new, **penalties)
        if isinstance(engine, Engine):
            return dict(engine.answers([request]))[0].token_ids
        return answers(engine, [prompt], max_new_tokens=new, **penalties)[0]

    def expected(frequency: float, presence: float) -> list[int]:
        written: list[int] = []
        while len(written) < new:
            with torch.no_grad():
                logits = llama(
                    input_ids=torch.tensor([[*prompt[0], *written]]),
                    segment_ids=torch.tensor([[*prompt[1], *[3] * len(written)]]),
                ).logits[0, -1]
            for token in set(written):
                logits[token] -= written.count(token) * frequency + presence
            if (token := int(logits.argmax())) in Engine(llama, tokenizer)._stops:
                break
            written.append(token)
        return written

    plain = expected(0.0, 0.0)
    assert expected(1.0, 0.0) != expected(0.0, 1.0), "counting makes no difference"
    for frequency, presence in ((0.0, 0.0), (1.0, 0.0), (3.0, 0.0), (0.0, 5.0), (-2.0, 1.0)):
        wanted = expected(frequency, presence)
        assert got(frequency_penalty=frequency, presence_penalty=presence) == wanted
        assert (wanted == plain) == (frequency == presence == 0.0), "the penalty made no difference"
    with pytest.raises(ValueError, match="frequency_penalty=inf"):
        asked(prompt, frequency_penalty=float("inf"))


def test_logprobs_are_those_of_the_model(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    engine, heard = ContinuousEngine(llama, tokenizer), Heard()
    prompt = prompt_of(random.Random(11), 20)
    row = engine.row(asked(prompt, logprobs=2, temperature=2.0, seed=0, presence_penalty=1.0))
    engine.submit(row)
    heard.run(engine)
    tokens = heard.tokens[row]
    with torch.no_grad():
        chances = llama(
            input_ids=torch.tensor([[*prompt[0], *tokens]]),
            segment_ids=torch.tensor([[*prompt[1], *[3] * len(tokens)]]),
        ).logits[0, len(prompt[0]) - 1 :].log_softmax(-1)  # fmt: skip
    assert [token for token, _, _ in heard.logprobs[row]] == tokens
    for place, (token, value, likeliest) in enumerate(heard.logprobs[row]):
        assert value == pytest.approx(float(chances[place, token]), abs=1e-4)
        assert [other for other, _ in likeliest] == chances[place].topk(2).indices.tolist()


def test_scale_0_is_the_bare_model_bit_for_bit(tokenizer: Any) -> None:
    bare, prompt = plain_model("llama", vocab=len(tokenizer)), prompt_of(random.Random(12), 40)
    zero = rw.attach(plain_model("llama", vocab=len(tokenizer)), init_std=0.0)
    model = tiny_model("llama", vocab=len(tokenizer))
    chances = []
    for one, scale in ((model, 0.0), (zero, 1.0)):
        engine, heard = ContinuousEngine(one, tokenizer), Heard()
        row = engine.row(asked(prompt, logprobs=3), scale)
        engine.submit(row)
        heard.run(engine)
        chances.append(heard.logprobs[row])
    assert chances[0] == chances[1]
    with torch.no_grad():
        first = bare(input_ids=torch.tensor([prompt[0]])).logits[0, -1].log_softmax(-1)
    assert chances[0][0][1] == float(first.max())
