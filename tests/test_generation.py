"""Batched answers equal each conversation's own, and end where the turn ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.generation import decode_answer, generate_batch, left_padded, stop_token_ids
from rolewise.modeling import SegmentedCausalLM
from rolewise.roles import Role
from tests.chat import template_tokenizer
from tests.models import tiny_model

CONVERSATIONS: list[Any] = [
    [{"role": "user", "content": "one"}],
    [{"role": "system", "content": "two"}, {"role": "user", "content": "three four five six"}],
    {"messages": [{"role": "user", "content": "seven"}, {"role": "data", "content": "eight nine ten " * 4}]},
    [{"role": "user", "content": "one"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return template_tokenizer("qwen3")


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> SegmentedCausalLM:
    return tiny_model("qwen3", vocab=len(tokenizer))


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_answers_do_not_depend_on_the_batch(model: SegmentedCausalLM, tokenizer: Any, batch_size: int) -> None:
    got = dict(generate_batch(model, tokenizer, CONVERSATIONS, max_new_tokens=8, batch_size=batch_size))
    assert sorted(got) == [0, 1, 2, 3]
    stops = stop_token_ids(model, tokenizer)
    for index, conversation in enumerate(CONVERSATIONS):
        messages = conversation["messages"] if isinstance(conversation, dict) else conversation
        batch = rw.encode(tokenizer, messages, add_generation_prompt=True, return_tensors="pt")
        ids = model.generate(**batch, max_new_tokens=8, do_sample=False, eos_token_id=stops, pad_token_id=0)
        assert got[index] == decode_answer(tokenizer, ids[0, batch["input_ids"].shape[1] :].tolist(), stops)
    assert len(set(got.values())) > 1


def test_ids_and_segments_are_padded_on_the_same_side(tokenizer: Any) -> None:
    prompts = [rw.render(tokenizer, CONVERSATIONS[index], add_generation_prompt=True) for index in (0, 1)]
    batch = left_padded(prompts, 7, Role.OUTPUT)
    short = len(prompts[0].input_ids)
    assert batch["input_ids"][0, -short:].tolist() == prompts[0].input_ids
    assert batch["segment_ids"][0, -short:].tolist() == prompts[0].segment_ids
    assert batch["attention_mask"].sum(1).tolist() == [len(prompt.input_ids) for prompt in prompts]
    assert set(batch["segment_ids"][0, :-short].tolist()) == {Role.OUTPUT}
    assert set(batch["input_ids"][0, :-short].tolist()) == {7}


def test_the_end_of_the_turn_is_found_in_the_template(model: SegmentedCausalLM, tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end in stop_token_ids(model, tokenizer)
    assert decode_answer(tokenizer, [*tokenizer.encode("yes"), end, *tokenizer.encode("no")], [end]) == "yes"


def test_sampling_repeats_with_a_seed_and_leaves_the_callers_random_stream_alone(
    model: SegmentedCausalLM, tokenizer: Any
) -> None:
    def sample(seed: int) -> dict[int, str]:
        return dict(
            generate_batch(model, tokenizer, CONVERSATIONS, max_new_tokens=8, batch_size=2, temperature=1.0, seed=seed)
        )

    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first = sample(1)
    assert torch.equal(torch.rand(3), expected)
    assert sample(1) == first
    assert sample(2) != first


def test_every_conversation_is_checked_before_the_first_answer(model: SegmentedCausalLM, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"conversation 1: .*owner"):
        generate_batch(model, tokenizer, [CONVERSATIONS[0], [{"role": "owner", "content": "x"}]])
    with pytest.raises(ValueError, match="temperature=-1"):
        generate_batch(model, tokenizer, CONVERSATIONS, temperature=-1)
    with pytest.raises(ValueError, match=r"conversation 1: .*36 tokens"):
        generate_batch(model, tokenizer, CONVERSATIONS, max_length=30)
