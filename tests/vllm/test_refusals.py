"""No endpoint of vLLM answers a prompt without roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.vllm.conversations import conversations
from tests.vllm.servers import Reference, Server

MESSAGES = [{"role": "system", "content": "copy"}, {"role": "user", "content": "red"}]
PLAIN = [5, 6, 7]
TRIED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "red dog"}),
    ("/v1/completions", {"prompt": ["red", "dog"]}),
    ("/v1/completions", {"prompt": PLAIN}),
    ("/v1/completions", {"prompt": [PLAIN, PLAIN]}),
    ("/v1/completions", {"prompt": PLAIN, "stream": True}),
    ("/v1/completions", {"prompt": PLAIN, "use_beam_search": True, "temperature": 0}),
    ("/v1/completions", {"prompt": [-1, 400]}),
    ("/v1/completions", {"prompt": "red", "suffix": "dog"}),
    ("/v1/completions", {"prompt": None, "prompt_embeds": "AAAA"}),
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
    ("/v1/chat/completions/batch", {"messages": [MESSAGES, MESSAGES]}),
    ("/v1/responses", {"input": "red dog"}),
    ("/v1/responses", {"input": MESSAGES, "stream": True}),
    ("/v1/messages", {"messages": MESSAGES[1:], "max_tokens": 4}),
    ("/v1/messages/count_tokens", {"messages": MESSAGES[1:]}),
    ("/v1/systemone", {"messages": MESSAGES, "options": ["red", "dog"]}),
    ("/tokenize", {"prompt": "red dog"}),
    ("/tokenize", {"messages": MESSAGES}),
    ("/generative_scoring", {"query": "red", "items": ["dog"], "label_token_ids": [3, 4]}),
    ("/inference/v1/generate", {"token_ids": PLAIN, "sampling_params": {"max_tokens": 4}}),
    ("/inference/v1/generate", {"token_ids": PLAIN, "sampling_params": {"max_tokens": 4}, "stream": True}),
    ("/v1/completions/render", {"prompt": "red dog"}),
    ("/v1/chat/completions/render", {"messages": MESSAGES}),
    ("/v1/messages/render", {"messages": MESSAGES[1:], "max_tokens": 4}),
    ("/v1/responses/render", {"input": "red dog"}),
    ("/invocations", {"prompt": "red dog"}),
    ("/invocations", {"prompt": PLAIN}),
    ("/invocations", {"messages": MESSAGES}),
    ("/v1/embeddings", {"input": "red"}),
    ("/pooling", {"input": PLAIN}),
    ("/classify", {"input": "red"}),
    ("/score", {"text_1": "red", "text_2": "dog"}),
    ("/rerank", {"query": "red", "documents": ["dog"]}),
]


@pytest.mark.parametrize(("path", "body"), TRIED, ids=[f"{path} {sorted(body)}" for path, body in TRIED])
def test_refused(server: Server, path: str, body: dict[str, Any]) -> None:
    response = server.post(path, **body)
    assert 400 <= response.status_code < 500, response.text
    assert '"choices"' not in response.text


def test_the_reason_is_said(server: Server, llama: Path) -> None:
    limit = Reference(llama).packed.limit
    assert "look like plain token ids" in server.post("/v1/completions", prompt=PLAIN).text
    assert "text has no roles" in server.post("/v1/completions", prompt="red").text
    assert "--upstream" in server.post("/v1/chat/completions", messages=MESSAGES).text
    response = server.post("/v1/completions", prompt=[limit])
    assert (response.status_code, f"0..{limit - 1}" in response.text) == (400, True)


def test_packed_ids_pass_where_tokens_come_in(server: Server, llama: Path) -> None:
    reference = Reference(llama)
    prompt = reference.pack(conversations(1)[0])
    response = server.post(
        "/inference/v1/generate", token_ids=prompt, sampling_params={"max_tokens": 4, "temperature": 0}
    )
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["token_ids"] == server.complete(prompt, max_tokens=4)[0]["token_ids"]
    ids, _ = reference.packed.unpack(prompt)
    assert server.post("/detokenize", tokens=prompt).json()["prompt"] == reference.tokenizer.decode(ids)


def test_every_endpoint_is_in_the_list_above(server: Server) -> None:
    """A new endpoint of a new vLLM must be looked at."""
    described: dict[str, Any] = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    posts = {path for path, methods in described.items() if "post" in methods}
    known = {path for path, _ in TRIED}
    harmless = {
        "/detokenize", "/ping", "/scale_elastic_ep", "/is_scaling_elastic_ep", "/v1/responses/{response_id}/cancel",
        "/v1/completions/derender", "/v1/chat/completions/derender", "/inference/v1/abort_requests",
    }  # fmt: skip
    assert posts - known <= harmless
