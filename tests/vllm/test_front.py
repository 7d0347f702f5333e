"""The front over real vLLM servers: the same answers, and a kill -9 under load."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from rolewise.engine.decoding import Request
from rolewise.generation import decode_answer
from rolewise.serving.app import create_app
from rolewise.serving.backend import Delta, UnavailableError
from rolewise.serving.settings import ServerSettings
from rolewise.serving.upstream import UpstreamBackend
from rolewise.serving.vllm_api import Timeouts
from tests.vllm.conversations import conversations
from tests.vllm.servers import PATIENCE, Reference, Server, Ties, free_port, launch, running, wait

WAITS = Timeouts(connect=30, first_token=120, next_token=60, check=30)


@pytest.fixture(scope="module")
def reference(llama: Path) -> Reference:
    return Reference(llama)


@contextlib.asynccontextmanager
async def backend(model: Path, *urls: str) -> AsyncIterator[UpstreamBackend]:
    made = UpstreamBackend(str(model), urls, timeouts=WAITS, check_every=0.5)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def collect(made: UpstreamBackend, request: Request) -> list[Delta]:
    return [delta async for delta in made.stream(request)]


def tokens_of(deltas: list[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def test_the_backend_answers_as_transformers_does(server: Server, llama: Path, reference: Reference) -> None:
    prompts = [reference.encode(messages) for messages in conversations()]
    expected = [reference.answer(reference.packed.pack(*prompt)) for prompt in prompts]
    stop = reference.tokenizer.eos_token_id

    async def run() -> list[list[Delta]]:
        async with backend(llama, server.url) as made:
            requests = [
                Request(input_ids=ids, segment_ids=segments, max_new_tokens=12, logprobs=2) for ids, segments in prompts
            ]
            return await asyncio.gather(*(collect(made, request) for request in requests))

    ties = Ties()
    for deltas, answer in zip(asyncio.run(run()), expected, strict=True):
        ended = answer.tokens[-1] == stop
        got = tokens_of(deltas)
        ties.compare([*got, stop] if deltas[-1].ending == "stop" else got, answer)
        if got[: len(answer.tokens) - ended] != answer.tokens[: len(answer.tokens) - ended]:
            continue
        assert deltas[-1].ending == ("stop" if ended else "max_tokens")
        rows = [row for delta in deltas for row in delta.logprobs or ()]
        for place, (token, value, best) in enumerate(rows):
            assert token == got[place]
            assert value == pytest.approx(float(answer.logprobs[place, token]), abs=2e-3)
            top = answer.logprobs[place].topk(2).values.tolist()
            assert [other for _, other in best] == pytest.approx(top, abs=2e-3)
    ties.check()


def test_seeds_and_penalties_reach_vllm(server: Server, llama: Path, reference: Reference) -> None:
    ids, segments = reference.encode(conversations(1)[0])
    prompt: dict[str, Any] = {"input_ids": ids, "segment_ids": segments, "max_new_tokens": 12}

    async def run() -> list[list[int]]:
        async with backend(llama, server.url) as made:
            requests = [
                Request(**prompt, temperature=1.0, seed=5),
                Request(**prompt, temperature=1.0, seed=5),
                Request(**prompt, temperature=1.0, seed=6),
                Request(**prompt, frequency_penalty=0.7),
            ]
            return [tokens_of(await collect(made, request)) for request in requests]

    first, again, other, penalised = asyncio.run(run())
    assert first == again != other
    packed = reference.packed.pack(ids, segments)
    got = server.complete(packed, frequency_penalty=0.7)[0]["token_ids"]
    assert penalised == [token for token in got if token != reference.tokenizer.eos_token_id]


@contextlib.contextmanager
def front(model: Path, *urls: str) -> Iterator[str]:
    """Our server in a thread, over these upstreams."""
    made = UpstreamBackend(str(model), urls, timeouts=WAITS, check_every=0.5)
    port = free_port()
    app = create_app({"tested": made}, ServerSettings())
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the front did not start"
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "tested", "messages": messages, "temperature": 0, "max_completion_tokens": 12}


def said(reference: Reference, messages: list[dict[str, Any]]) -> str:
    answer = reference.answer(reference.pack(messages))
    return decode_answer(reference.tokenizer, answer.tokens, [reference.tokenizer.eos_token_id])


def test_killed_under_load_and_back(llama: Path, reference: Reference, server: Server, tmp_path: Path) -> None:
    asked = conversations()
    expected = [said(reference, messages) for messages in asked]

    async def load(url: str, kill: Server | None) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=PATIENCE, limits=httpx.Limits(max_connections=16)) as client:
            first_done = asyncio.Event()

            async def one(messages: list[dict[str, Any]]) -> httpx.Response:
                response = await client.post(f"{url}/v1/chat/completions", json=ask(messages))
                first_done.set()
                return response

            tasks = [asyncio.create_task(one(messages)) for messages in asked]
            if kill is not None:
                await first_done.wait()
                await asyncio.to_thread(kill.kill)
            return await asyncio.gather(*tasks)

    def check(responses: list[httpx.Response]) -> int:
        right = 0
        for response, text in zip(responses, expected, strict=True):
            if response.status_code != 200:
                assert response.status_code == 503, response.text
                assert response.json()["error"]["code"] == "unavailable"
                continue
            right += response.json()["choices"][0]["message"]["content"] == text
        return right

    port = free_port()
    with running(llama, tmp_path / "log", port=port) as second, front(llama, server.url, second.url) as url:
        assert check(asyncio.run(load(url, None))) >= 48, "two may be ties"
        lost = check(responses := asyncio.run(load(url, second)))
        failed = sum(response.status_code != 200 for response in responses)
        assert failed <= 16, "only answers under way may fail"
        assert lost >= 48 - failed
        assert check(asyncio.run(load(url, None))) >= 48, "the front goes on with one"
        again = launch(llama, tmp_path / "log again", port=port)
        try:
            wait(again)
            counted = finished(again)
            deadline = time.monotonic() + 60
            while finished(again) == counted and time.monotonic() < deadline:
                assert check(asyncio.run(load(url, None))) >= 48
            assert finished(again) > counted, "the front uses it again by itself"
        finally:
            again.kill()


def finished(server: Server) -> float:
    """How many requests a server has finished."""
    page = httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text
    lines = [line for line in page.splitlines() if line.startswith("vllm:request_success_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_server_of_another_model_is_refused(server: Server, llama: Path) -> None:
    async def run() -> None:
        made = UpstreamBackend(str(llama), [server.url], timeouts=WAITS)
        object.__setattr__(made._packed, "vocab_size", made._packed.vocab_size + 1)
        with pytest.raises(UnavailableError, match="smaller vocabulary than ours"):
            await made.start()

    asyncio.run(run())
