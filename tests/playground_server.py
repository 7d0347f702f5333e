"""A server with a playground over engines that answer from a script, for tests and for the picture in the docs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from starlette.testclient import TestClient

import rolewise as rw
from rolewise.engine.decoding import Request
from rolewise.roles import DEFAULT_SCHEME, RoleScheme
from rolewise.serving.backend import Delta
from rolewise.serving.settings import ServerSettings

from .chat import byte_level_tokenizer


@cache
def chatml_tokenizer() -> Any:
    """A small tokenizer with our ChatML template, which has a header for data."""
    tokenizer = byte_level_tokenizer(("<|im_start|>", "<|im_end|>"), None)
    rw.prepare_tokenizer(tokenizer, "chatml")
    return tokenizer


@dataclass
class Scripted:
    """An engine that answers from a script, and notes what it was asked."""

    reply: Callable[[str, float | None], str | Exception]
    """From the prompt's text and the scale to an answer, or to what goes wrong after its first tokens."""
    delay: float = 0.0
    """Seconds between tokens."""
    tokenizer: Any = field(default_factory=chatml_tokenizer)
    scheme: RoleScheme = DEFAULT_SCHEME
    positions: int | None = 4096
    has_roles: bool = True
    takes_scale: bool = True
    asked: list[tuple[Request, float | None]] = field(default_factory=list)
    closed: int = 0
    """Answers that were given up before they ended."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def healthy(self) -> bool:
        return True

    async def stream(self, request: Request, *, scale: float | None = None) -> AsyncIterator[Delta]:
        self.asked.append((request, scale))
        reply = self.reply(self.tokenizer.decode(request.input_ids), scale)
        ids = self.tokenizer.encode(reply if isinstance(reply, str) else "So it", add_special_tokens=False)
        ended = False
        try:
            for token in ids[: request.max_new_tokens]:
                await asyncio.sleep(self.delay)
                yield Delta(token_ids=[token])
            if isinstance(reply, Exception):
                ended = True
                raise reply
            ended = True
            yield Delta(token_ids=[], ending="stop" if len(ids) <= request.max_new_tokens else "max_tokens")
        finally:
            self.closed += not ended


def playground_app(backends: dict[str, Scripted], settings: ServerSettings | None = None) -> Any:
    """The app with a playground over these engines."""
    from rolewise.serving.app import create_app

    return create_app(backends, settings or ServerSettings())


@contextmanager
def running(app: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a server that runs in a thread, and what stops it at once."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until, "the server did not start in time"
        time.sleep(0.02)

    def stop() -> None:
        server.should_exit = server.force_exit = True
        thread.join(timeout=20)

    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", stop
    finally:
        stop()


HOST = "Anna sings tonight. Ben plays the flute. Nobody dances."
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who sings?"},
    {"role": "data", "content": HOST},
]


def client(reply: Any = lambda prompt, scale: "Anna.", configured: ServerSettings | None = None, **options: Any) -> Any:
    """A client of a server with one model, `m`; its engine is `client.engine`."""
    engine = Scripted(reply, **options)
    made = TestClient(playground_app({"m": engine}, configured), base_url="http://127.0.0.1")
    made.engine = engine  # pyright: ignore[reportAttributeAccessIssue]
    return made


def events(made: Any, **body: Any) -> list[dict[str, Any]]:
    response = made.post("/playground/answer", json={"model": "m", "messages": MESSAGES, **body})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]
