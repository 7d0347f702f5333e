"""Servers that speak like vLLM with our plugin, and misbehave as real ones do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import rolewise as rw
from rolewise.engine.decoding import Request
from rolewise.serving.backend import Delta
from rolewise.serving.packed import PackedIds
from rolewise.serving.upstream import UpstreamBackend
from rolewise.serving.vllm_api import Timeouts
from tests.models import plain_model
from tests.training_model import tiny_tokenizer

PATIENT = Timeouts(connect=30, first_token=60, next_token=60, check=30)
"""For what does not wait: a busy machine must not look like a dead server."""
HASTY = Timeouts(connect=10, first_token=1.5, next_token=1.5, check=10)
"""For servers that hang."""


class FakeVllm:
    """A server with vLLM's endpoints; `misbehave` replaces how it answers a stream."""

    def __init__(self, packed: PackedIds, *, port: int = 0, plugin: bool = True, name: str = "fake") -> None:
        self.packed, self.plugin, self.name = packed, plugin, name
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.gone = 0
        self.misbehave: Callable[[HttpRequest, dict[str, Any]], Coroutine[Any, Any, Response]] | None = None
        self.healthy = True
        routes = [
            Route("/health", self._health),
            Route("/v1/models", self._models),
            Route("/v1/completions", self._completions, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._socket = config.bind_socket()
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def kill(self) -> None:
        """End at once; connections break."""
        self._server.force_exit = True
        self._server.should_exit = True
        for transport in list(self._server.server_state.connections):
            with contextlib.suppress(Exception):
                transport.transport.abort()  # type: ignore[union-attr]
        self._thread.join(10)
        self._socket.close()

    async def _health(self, request: HttpRequest) -> Response:
        return Response(status_code=200 if self.healthy else 503)

    async def _models(self, request: HttpRequest) -> Response:
        return JSONResponse({"data": [{"id": self.name, "max_model_len": 64}]})

    async def _completions(self, request: HttpRequest) -> Response:
        body = await request.json()
        prompt: list[int] = body["prompt"]
        self.keys.append(request.headers.get("authorization"))
        if self.plugin:
            try:
                self.packed.check(prompt)
            except ValueError as error:
                return JSONResponse({"error": {"message": str(error), "code": 400}}, 400)
        if not body.get("stream"):
            return JSONResponse({"choices": [{"token_ids": [1]}]})
        self.bodies.append(body)
        if self.misbehave is not None:
            return await self.misbehave(request, body)
        return StreamingResponse(self.answer(body), media_type="text/event-stream")

    async def answer(self, body: dict[str, Any], *, delay: float = 0.0) -> AsyncIterator[str]:
        """The prompt's last tokens, counted upwards."""
        first = body["prompt"][0] % 50
        try:
            for place in range(body["max_tokens"]):
                last = place + 1 == body["max_tokens"]
                await asyncio.sleep(delay)
                yield chunk([first + place], "length" if last else None, body.get("logprobs"))
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.gone += 1
            raise


def chunk(tokens: list[int], finish: str | None = None, logprobs: int | None = None) -> str:
    choice: dict[str, Any] = {"index": 0, "text": "", "token_ids": tokens, "finish_reason": finish}
    if logprobs is not None:
        best = {f"token_id:{200 + rank}": -0.1 * (rank + 1) for rank in range(logprobs)}
        choice["logprobs"] = {
            "tokens": [f"token_id:{token}" for token in tokens],
            "token_logprobs": [-5.0 for _ in tokens],
            "top_logprobs": [{f"token_id:{token}": -5.0, **best} for token in tokens],
        }
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def save_model(directory: Path) -> Path:
    """A tiny segmented model and its tokenizer."""
    tokenizer = tiny_tokenizer()
    model = rw.attach(plain_model("llama", vocab=len(tokenizer)))
    model.rolewise_tokenizer = tokenizer
    model.save_pretrained(directory)
    return directory


def ids() -> PackedIds:
    """How the tiny model's ids are packed."""
    return PackedIds(len(tiny_tokenizer()), rw.RoleScheme())


@contextlib.contextmanager
def starting() -> Iterator[Callable[..., FakeVllm]]:
    """Starts servers, and ends them."""
    started: list[FakeVllm] = []

    def make(**options: Any) -> FakeVllm:
        started.append(FakeVllm(options.pop("packed", ids()), **options))
        return started[-1]

    yield make
    for fake in started:
        fake.kill()


@contextlib.asynccontextmanager
async def backend(directory: Path, *fakes: FakeVllm | str, **options: Any) -> AsyncIterator[UpstreamBackend]:
    urls = [fake if isinstance(fake, str) else fake.url for fake in fakes]
    made = UpstreamBackend(str(directory), urls, **{"timeouts": PATIENT, "check_every": 0.1, **options})
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def request(first: int = 7, **options: Any) -> Request:
    return Request(**{"input_ids": [first, 8, 9], "segment_ids": [0, 1, 3], "max_new_tokens": 4, **options})


async def collect(stream: Any) -> tuple[list[int], list[Delta]]:
    deltas = [delta async for delta in stream]
    return [token for delta in deltas for token in delta.token_ids], deltas


async def until(condition: Callable[[], bool], *, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.02)


def dead() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
