"""What a request may ask for works on plain tokens, although prompts are packed ids."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.vllm.conversations import conversations
from tests.vllm.servers import Reference, Server, Ties


@pytest.fixture(scope="module")
def reference(llama: Path) -> Reference:
    return Reference(llama)


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[list[int]]:
    return [reference.pack(messages) for messages in conversations()]


def test_repetition_penalty_counts_the_prompts_tokens_whatever_their_role(
    server: Server, reference: Reference, prompts: list[list[int]]
) -> None:
    ties, changed = Ties(), 0
    for prompt in prompts:
        expected = reference.answer(prompt, repetition_penalty=1.7)
        got = server.complete(prompt, repetition_penalty=1.7)[0]["token_ids"]
        if got != expected.tokens:  # Transformers' logits are those before the penalty: judge ties by the scores
            expected.logprobs = scores(reference, prompt, expected.tokens, 1.7, 0.0, 0.0)
        ties.compare(got, expected)
        changed += got != reference.answer(prompt).tokens
    ties.check()
    assert changed > len(prompts) // 2, "the penalty must matter here"


@pytest.mark.parametrize(("frequency", "presence"), [(0.7, 0.0), (0.0, 1.5), (0.4, -0.3)])
def test_frequency_and_presence_penalties_count_the_answers_tokens(
    server: Server, reference: Reference, prompts: list[list[int]], frequency: float, presence: float
) -> None:
    for prompt in prompts[:20]:
        got = server.complete(prompt, frequency_penalty=frequency, presence_penalty=presence)[0]["token_ids"]
        for place, row in enumerate(scores(reference, prompt, got, 1.0, frequency, presence)):
            assert float(row.max() - row[got[place]]) < Ties.NEAR


@torch.no_grad()
def scores(
    reference: Reference, prompt: list[int], answer: list[int], repetition: float, frequency: float, presence: float
) -> torch.Tensor:
    """Penalised logits [answer, vocabulary] at each place of an answer, as vLLM documents them."""
    ids, segments = reference.packed.unpack(prompt)
    segments = [*segments, *[reference.packed.scheme.output] * len(answer)]
    batch = {"input_ids": torch.tensor([[*ids, *answer]]), "segment_ids": torch.tensor([segments])}
    logits = reference.model(**batch).logits[0, len(ids) - 1 : -1].float()
    for place, row in enumerate(logits):
        seen = torch.tensor(sorted({*ids, *answer[:place]}))
        row[seen] = torch.where(row[seen] > 0, row[seen] / repetition, row[seen] * repetition)
        for token, count in Counter(answer[:place]).items():
            row[token] -= frequency * count + presence
    return logits


def test_logprobs_of_the_prompt_are_of_plain_tokens(
    server: Server, reference: Reference, prompts: list[list[int]]
) -> None:
    for prompt in prompts[:10]:
        (choice,) = server.complete(prompt, prompt_logprobs=0, max_tokens=1)
        ids, segments = reference.packed.unpack(prompt)
        batch = {"input_ids": torch.tensor([ids]), "segment_ids": torch.tensor([segments])}
        with torch.no_grad():
            expected = reference.model(**batch).logits[0].float().log_softmax(-1)
        rows: list[Any] = choice["prompt_logprobs"]
        assert len(rows) == len(ids)
        for place in range(1, len(ids)):
            assert rows[place][str(ids[place])]["logprob"] == pytest.approx(
                float(expected[place - 1, ids[place]]), abs=2e-3
            )


def test_many_answers_of_one_prompt(server: Server, prompts: list[list[int]]) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 3, "n": 4}
    choices = server.complete(prompts[0], **options)
    answers = [choice["token_ids"] for choice in choices]
    assert len(answers) == 4
    assert len({tuple(answer) for answer in answers}) > 1
    assert answers == [choice["token_ids"] for choice in server.complete(prompts[0], **options)], "a seed repeats"
    # So near to greedy that all are the likeliest answer; vLLM takes n > 1 for samples only.
    greedy = server.complete(prompts[0])[0]["token_ids"]
    cold = server.complete(prompts[0], n=2, temperature=0.01, top_k=1)
    assert [choice["token_ids"] for choice in cold] == [greedy, greedy]


def test_stops_and_bad_words(server: Server, reference: Reference, prompts: list[list[int]]) -> None:
    prompt = next(p for p in prompts if len(set(server.complete(p)[0]["token_ids"])) > 2)
    tokens = server.complete(prompt)[0]["token_ids"]
    place = next(place for place in range(1, len(tokens)) if tokens[place] not in tokens[:place])
    (stopped,) = server.complete(prompt, stop_token_ids=[tokens[place]])
    assert (stopped["token_ids"], stopped["finish_reason"]) == (tokens[: place + 1], "stop")
    eos = reference.tokenizer.eos_token_id
    ended = [c for p in prompts for c in server.complete(p, max_tokens=40) if c["finish_reason"] == "stop"]
    assert ended, "some answers must end by themselves"
    assert all(choice["token_ids"][-1] == eos for choice in ended)
    words = server.complete(prompt, allowed_token_ids=list(range(70, 90)))[0]
    assert set(words["token_ids"]) <= set(range(70, 90))
    letter = words["text"][0]
    (stopped,) = server.complete(prompt, allowed_token_ids=list(range(70, 90)), stop=[letter])
    assert (stopped["text"], stopped["finish_reason"]) == ("", "stop")
    (without,) = server.complete(prompt, allowed_token_ids=list(range(70, 90)), bad_words=[letter])
    assert letter not in without["text"]


def test_echo_repeats_the_prompts_text(server: Server, reference: Reference, prompts: list[list[int]]) -> None:
    ids, _ = reference.packed.unpack(prompts[0])
    (choice,) = server.post(
        "/v1/completions", prompt=prompts[0], echo=True, logprobs=1, max_tokens=1, temperature=0
    ).json()["choices"]
    assert choice["text"].startswith(reference.tokenizer.decode(ids))
    assert len(choice["logprobs"]["tokens"]) == len(ids) + 1


def test_json_is_written_where_it_is_asked_for(server: Server, prompts: list[list[int]]) -> None:
    (choice,) = server.complete(prompts[0], structured_outputs={"choice": ["cat", "dog"]})
    assert choice["text"] in ("cat", "dog")


def test_beam_search_takes_packed_prompts(server: Server, prompts: list[list[int]]) -> None:
    (choice,) = server.post(
        "/v1/completions", prompt=prompts[0], use_beam_search=True, temperature=0, n=1, max_tokens=4
    ).json()["choices"]
    assert choice["finish_reason"] in ("length", "stop")
