"""`/v1/chat/completions`: one request, its answers, whole or streamed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from rolewise.serving.admission import shutting_down
from rolewise.serving.answering import Answering, Prompt, model_of
from rolewise.serving.errors import api_error
from rolewise.serving.guard import GoneError
from rolewise.serving.metrics import Metrics
from rolewise.serving.parsing import ChatJob, parse_chat
from rolewise.serving.reading import Piece, TokenInfo
from rolewise.serving.settings import ServerSettings
from rolewise.serving.tracing import named

T = TypeVar("T")

logger = logging.getLogger("rolewise.serving")

_LARGE = 64 * 1024
"""Bytes of a body that would keep all other requests waiting while it is parsed."""
_NEVER = -9999.0
"""OpenAI's log-probability of what cannot be; JSON has no infinity."""
_LAST_WORDS = 1.0
"""Seconds that a client has for the end of a stream that was cut."""

_FINISH = {"stop": "stop", "settled": "stop", "max_tokens": "length", "model_length": "length"}


class ChatCompletions:
    """Serves chat requests.

    Args:
        models: by name.
        settings: the server's.
        metrics: what is counted.
        threads: that read large bodies.
    """

    def __init__(
        self, models: Mapping[str, Answering], settings: ServerSettings, metrics: Metrics, threads: ThreadPoolExecutor
    ) -> None:
        self._models = models
        self._settings = settings
        self._metrics = metrics
        self._threads = threads

    async def __call__(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body was read."""
        began = perf_counter()
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                await unless_gone(self._serve(body, began, send), receive)
        except TimeoutError as error:
            raise api_error(error) from error

    async def _serve(self, body: bytes, began: float, send: Send) -> None:
        job = await self._parsed(body)
        answering = model_of(self._models, job.model)
        with answering.admitted(job.choices):
            prompt = await answering.render(job.messages, tools=job.tools, enable_thinking=job.enable_thinking)
            self._metrics.front.labels(answering.name).observe(perf_counter() - began)
            pieces = merged([
                answering.stream(prompt, replace(job.sampling, seed=job.seed_of(choice)))
                for choice in range(job.choices)
            ])  # fmt: skip
            reply = _Reply(job, answering, prompt, number_of_calls(job.messages))
            async with contextlib.aclosing(pieces):
                await (reply.stream(pieces, send) if job.stream else reply.whole(pieces, send))

    async def _parsed(self, body: bytes) -> ChatJob:
        if len(body) < _LARGE:
            return parse_chat(body, self._settings)
        return await asyncio.get_running_loop().run_in_executor(self._threads, parse_chat, body, self._settings)


class _Reply:
    """Writes the answers to one request."""

    def __init__(self, job: ChatJob, answering: Answering, prompt: Prompt, called: int) -> None:
        self._job = job
        self._answering = answering
        self._prompt = prompt
        self._called = called
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": answering.name}
        self._written = [0] * job.choices
        self._cached = 0

    async def whole(self, pieces: AsyncIterator[tuple[int, Piece]], send: Send) -> None:
        """All answers in one JSON object."""
        given: list[list[Piece]] = [[] for _ in range(self._job.choices)]
        async for choice, piece in pieces:
            self._count(choice, piece)
            given[choice].append(piece)
        choices = [self._choice(number, some) for number, some in enumerate(given)]
        body = dumped({**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage()})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def stream(self, pieces: AsyncIterator[tuple[int, Piece]], send: Send) -> None:
        """Server-sent events; the response begins with the first piece, so that an error before it has its status."""
        started = False
        try:
            async for choice, piece in pieces:
                events = b""
                if not started:
                    started = True
                    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
                               (b"x-accel-buffering", b"no")]  # fmt: skip
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    first = {"role": "assistant", "content": ""}
                    events = b"".join(self._event(number, first) for number in range(self._job.choices))
                self._count(choice, piece)
                events += self._events(choice, piece)
                if events:
                    await send({"type": "http.response.body", "body": events, "more_body": True})
            last = b"data: [DONE]\n\n"
            if self._job.include_usage:
                last = self._chunk({"choices": [], "usage": self._usage()}) + last
            await send({"type": "http.response.body", "body": last})
        except (Exception, asyncio.CancelledError) as error:
            if not started:
                raise
            if isinstance(error, asyncio.CancelledError):
                # A client that is still there learns why the stream ends here.
                why = shutting_down() if self._answering.stopping else TimeoutError()
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(_LAST_WORDS):
                        await send({"type": "http.response.body", "body": _error_event(why)})
                raise
            if (told := api_error(error)).status == 500:
                logger.exception("%s", named(f"an answer of {self._answering.name} failed"))
            await send({"type": "http.response.body", "body": _error_event(told)})

    def _count(self, choice: int, piece: Piece) -> None:
        self._written[choice] = piece.written
        self._cached = max(self._cached, piece.cached_tokens)

    def _usage(self) -> dict[str, Any]:
        read, written = len(self._prompt.input_ids), sum(self._written)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }

    def _choice(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if reasoning := "".join(piece.reasoning for piece in pieces):
            message["reasoning_content"] = reasoning
        last = pieces[-1]
        if calls := self._calls(number, last):
            message |= {"tool_calls": calls, "content": text or None}
        logprobs = None
        if self._job.sampling.logprobs is not None:
            logprobs = self._logprobs([token for piece in pieces for token in piece.tokens])
        return {"index": number, "message": message, "logprobs": logprobs, "finish_reason": _finish(last)}

    def _events(self, choice: int, piece: Piece) -> bytes:
        delta: dict[str, Any] = {}
        if piece.reasoning:
            delta["reasoning_content"] = piece.reasoning
        if piece.text:
            delta["content"] = piece.text
        if piece.calls:
            calls = self._calls(choice, piece)
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
        logprobs = None
        if self._job.sampling.logprobs is not None and piece.tokens:
            logprobs = self._logprobs(piece.tokens)
        events = self._event(choice, delta, logprobs) if delta or logprobs else b""
        return events + (self._event(choice, {}, None, _finish(piece)) if piece.ending else b"")

    def _event(self, choice: int, delta: Any, logprobs: Any = None, finish: str | None = None) -> bytes:
        one = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage: dict[str, Any] = {"usage": None} if self._job.include_usage else {}
        return self._chunk({"choices": [one], **usage})

    def _chunk(self, fields: dict[str, Any]) -> bytes:
        return b"data: " + dumped({**self._head, "object": "chat.completion.chunk", **fields}) + b"\n\n"

    def _calls(self, choice: int, piece: Piece) -> list[dict[str, Any]]:
        # Nine letters and digits, as Mistral's template wants; no two alike in a conversation.
        first = self._called + choice * 1000
        return [
            {
                "id": f"call{first + number:05d}",
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for number, call in enumerate(piece.calls)
        ]

    def _logprobs(self, tokens: Sequence[TokenInfo]) -> dict[str, Any]:
        content = [_logprob(token) | {"top_logprobs": [_logprob(one) for one in token.likeliest]} for token in tokens]
        return {"content": content, "refusal": None}


def number_of_calls(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many tool calls a conversation has."""
    return sum(len(message.get("tool_calls") or ()) for message in messages)


async def merged(streams: Sequence[AsyncGenerator[Piece, None]]) -> AsyncGenerator[tuple[int, Piece], None]:
    """The pieces of several answers as they come, each with its answer's number; the first error ends all."""
    if len(streams) == 1:
        async with contextlib.aclosing(streams[0]) as only:
            async for piece in only:
                yield 0, piece
        return
    ready: asyncio.Queue[tuple[int, Piece | None]] = asyncio.Queue()

    async def carry(number: int, stream: AsyncGenerator[Piece, None]) -> None:
        try:
            async with contextlib.aclosing(stream):
                async for piece in stream:
                    ready.put_nowait((number, piece))
        finally:
            ready.put_nowait((number, None))

    tasks = [asyncio.ensure_future(carry(number, stream)) for number, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            number, piece = await ready.get()
            if piece is not None:
                yield number, piece
                continue
            left -= 1
            await tasks[number]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """What `work` comes to; it is cancelled when the client goes away.

    Raises:
        GoneError: when the client did.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise GoneError
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _finish(piece: Piece) -> str:
    if piece.calls and piece.ending == "stop":
        return "tool_calls"
    assert piece.ending is not None, "the answer has not ended"
    return _FINISH[piece.ending]


def _logprob(token: TokenInfo) -> dict[str, Any]:
    chance = token.logprob if token.logprob is not None else _NEVER
    if math.isnan(chance) or chance == math.inf:
        raise ValueError(f"the engine gave a log-probability of {chance}, which is none")
    return {"token": token.text, "logprob": chance if chance > _NEVER else _NEVER, "bytes": list(token.bytes)}


def _error_event(error: Exception) -> bytes:
    return b"data: " + dumped(api_error(error).body()) + b"\n\n"


def dumped(value: Any) -> bytes:
    """Compact JSON."""
    return _encode(value).encode()


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
