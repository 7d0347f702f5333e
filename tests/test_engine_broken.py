"""What is wrong with one row fails it alone: damaged weights, overflow, a judge that fails."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from rolewise.engine.batches import Engine
from rolewise.engine.continuous import ContinuousEngine
from rolewise.engine.decoding import NotFiniteError
from rolewise.modeling import SegmentedCausalLM

from .engine_rows import Heard, alone, answers, asked, prompt_of
from .models import FAMILIES, tiny_model


def test_what_is_wrong_with_one_row_fails_it_alone(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    def broken(text: str) -> bool:
        if len(text) > 4:
            raise KeyError("no such judge")
        return False

    rng = random.Random(14)
    prompts = [prompt_of(rng, 40) for _ in range(4)]
    engine, heard = ContinuousEngine(llama, tokenizer), Heard()
    engine.reader.stops = []
    mine = [engine.row(asked(one, settled=broken if at == 1 else None)) for at, one in enumerate(prompts)]
    for row in mine:
        engine.submit(row)
    heard.step(engine)
    # One row's keys become not-a-number, as an overflow would make them; others take its place in the lane later.
    lane: Any = engine._running._groups[0].lane
    with torch.inference_mode():
        for layer in lane._layers:
            layer.keys[3] = float("nan")
    while mine[1] not in heard.ended:
        heard.step(engine)
    assert isinstance(heard.ended[mine[1]], KeyError)
    assert isinstance(heard.ended[mine[3]], ArithmeticError)
    late = [prompt_of(rng, 5) for _ in range(2)]
    mine += [engine.row(asked(one)) for one in late]
    for row in mine[4:]:
        engine.submit(row)
    heard.step(engine)
    assert len(engine._running._groups) == 1
    heard.run(engine)
    for at, prompt in ((0, prompts[0]), (2, prompts[2]), (4, late[0]), (5, late[1])):
        assert heard.tokens[mine[at]] == alone(llama, prompt, [])
    assert answers(engine, prompts) == [alone(llama, one, []) for one in prompts], "what was not a number was kept"


def untied(family: str, vocab: int) -> SegmentedCausalLM:
    """A model whose head keeps its own weights when a token's embedding is damaged."""
    model = tiny_model(family, vocab=vocab)
    model.config.tie_word_embeddings = False
    head: Any = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_padding_token_counts_for_nothing(family: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masked keys are multiplied by 0, and not a number stays one; a token that the model lacks has no embedding."""
    model, rng = untied(family, len(tokenizer)), random.Random(20)
    prompts = [prompt_of(rng, rng.randrange(1, 60)) for _ in range(6)]
    expected = [alone(model, prompt, []) for prompt in prompts]
    scored = [(*prompt_of(rng, length), [0] * (length - 2) + [1, 1]) for length in (30, 5, 12)]
    scores = dict(Engine(model, tokenizer).logprobs(scored))
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.pad_token_id] = float("nan")  # pyright: ignore[reportArgumentType, reportIndexIssue]
    for pad in (tokenizer.pad_token_id, len(tokenizer) + 5, None):
        monkeypatch.setattr(type(tokenizer), "pad_token_id", pad, raising=False)
        continuous, batches = ContinuousEngine(model, tokenizer), Engine(model, tokenizer)
        continuous.reader.stops = batches._stops = []
        assert answers(continuous, prompts) == expected
        found = dict(batches.answers([asked(prompt) for prompt in prompts]))
        assert [found[at].token_ids for at in range(len(prompts))] == expected
        assert dict(batches.logprobs(scored)) == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(value: float, temperature: float, tokenizer: Any) -> None:
    """An argmax of what is not a number is a token like any other, so that an answer of nonsense looks like one."""
    model, rng = untied("llama", len(tokenizer)), random.Random(21)
    bad = 200
    good, damaged = (([one for one in prompt_of(rng, 9)[0] if one != bad], []) for _ in range(2))
    damaged = ([*damaged[0], bad], [])
    prompts = [(ids, [0] * len(ids)) for ids, _ in (good, damaged)]
    with torch.no_grad():
        model.get_input_embeddings().weight[bad] = value  # pyright: ignore[reportArgumentType, reportIndexIssue]
    requests = [asked(prompt, temperature=temperature, seed=0, max_new_tokens=2) for prompt in prompts]
    with pytest.raises(NotFiniteError, match=r"logits are nan: its weights are damaged.*another dtype"):
        dict(Engine(model, tokenizer).answers(requests))
    engine, heard = ContinuousEngine(model, tokenizer), Heard()
    rows = [engine.row(request) for request in requests]
    for row in rows:
        engine.submit(row)
    heard.run(engine)
    assert not isinstance(heard.ended[rows[0]], Exception)
    assert isinstance(heard.ended[rows[1]], NotFiniteError)
    assert heard.tokens.get(rows[1], []) == []
