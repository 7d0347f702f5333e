"""Greedy answers of vLLM with our plugin are those of the same model in Transformers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rolewise.roles import RoleScheme
from tests.vllm.conversations import conversations
from tests.vllm.servers import Expected, Reference, Server, Ties, running, save_tiny

THREE = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
REVERSED = RoleScheme(names=("output", "data", "user", "system"), rows=(3, 2, 1, 0))
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-compiled": {"family": "llama", "compiled": True},
    "llama-untied": {"family": "llama", "untied": True, "scheme": REVERSED},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"scale": 0.5},
    "gemma3": {"scheme": THREE},
    "mistral": {},
    "granite": {"override": 0.25},
    "smollm3": {},
}
"""Between them: tied and untied heads, other schemes and numbers of segments, scales (saved, or
set for the server), eager and compiled;
smollm3 is run by vLLM as a model of Transformers."""


class Case:
    """A model, served and in Transformers."""

    def __init__(self, server: Server, reference: Reference) -> None:
        self.server, self.reference = server, reference
        self.prompts = [reference.pack(messages) for messages in conversations()]
        self.expected = [reference.answer(prompt) for prompt in self.prompts]

    def check(self, answers: list[list[int]]) -> None:
        ties = Ties()
        for answer, expected in zip(answers, self.expected, strict=True):
            ties.compare(answer, expected)
        ties.check()


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    options = {"family": request.param, **CASES[request.param]}
    compiled, scale = options.pop("compiled", False), options.pop("override", None)
    overridden = () if scale is None else ("--hf-overrides", json.dumps({"segment_scale": scale}))
    directory, log = tmp_path_factory.mktemp("models") / request.param, tmp_path_factory.mktemp("server") / "log"
    save_tiny(options.pop("family"), directory, **options)
    with running(directory, log, *overridden, compiled=compiled) as server:
        reference = Reference(directory)
        if scale is not None:
            reference.model.segment_scale = scale
        yield Case(server, reference)


def test_one_after_the_other_with_prefix_caching_on(case: Case) -> None:
    case.check([case.server.complete(prompt)[0]["token_ids"] for prompt in case.prompts])


def test_again_from_the_cache(case: Case) -> None:
    case.check([case.server.complete(prompt)[0]["token_ids"] for prompt in reversed(case.prompts)][::-1])


def test_all_at_once(case: Case) -> None:
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda prompt: case.server.complete(prompt)[0]["token_ids"], case.prompts))
    case.check(answers)


def test_a_batch_in_one_request(case: Case) -> None:
    case.check([choice["token_ids"] for choice in case.server.complete(case.prompts)])


def test_equal_text_with_other_roles_shares_no_cache(case: Case) -> None:
    """The same tokens with every role there is, one after the other: each answers as it does alone."""
    packed = case.reference.packed
    tokens, segments = case.reference.encode(
        [{"role": "system", "content": "copy the last word of " * 8}, {"role": "user", "content": "red dog"}]
    )
    output = packed.scheme.output
    rows = [row for row in packed.rows if row != output]
    prompts = [packed.pack(tokens, [row if segment != output else output for segment in segments]) for row in rows]
    prompts.append(packed.pack(tokens, segments))
    expected = [case.reference.answer(prompt) for prompt in prompts]
    for one, other in itertools.combinations(expected[: len(rows)], 2):
        assert differ(one, other), "the roles must matter here"
    for _ in range(2):
        for prompt, answer in zip(prompts, expected, strict=True):
            (choice,) = case.server.complete(prompt, logprobs=0)
            Ties().compare(choice["token_ids"], answer)
            value = choice["logprobs"]["token_logprobs"][0]
            assert value == pytest.approx(float(answer.logprobs[0, choice["token_ids"][0]]), abs=2e-3)


def differ(one: Expected, other: Expected) -> bool:
    """Whether two answers come from different states, by far more than rounding."""
    return float((one.logprobs[0] - other.logprobs[0]).abs().max()) > 0.05


def test_log_probabilities(case: Case) -> None:
    for prompt, expected in list(zip(case.prompts, case.expected, strict=True))[:10]:
        (choice,) = case.server.complete(prompt, logprobs=3, return_tokens_as_token_ids=True)
        Ties().compare(choice["token_ids"], expected)
        got = zip(choice["token_ids"], choice["logprobs"]["token_logprobs"], expected.tokens, strict=True)
        for place, (token, value, other) in enumerate(got):
            if token != other:  # a tie, as compared above
                break
            assert value == pytest.approx(float(expected.logprobs[place, token]), abs=2e-3)


def test_the_bare_model_at_scale_zero(case: Case) -> None:
    """What the table does must be seen: at scale 0 the answers are others."""
    case.reference.model.segment_scale, scale = 0.0, case.reference.model.segment_scale
    bare = [case.reference.answer(prompt) for prompt in case.prompts[:10]]
    case.reference.model.segment_scale = scale
    assert all(differ(one, other) for one, other in zip(bare, case.expected, strict=False))
