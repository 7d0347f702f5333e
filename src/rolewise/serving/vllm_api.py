"""One vLLM server with our plugin: what is asked of it, and how its answers are read.

Nothing here chooses between servers or tries again; `rolewise.serving.upstream` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from rolewise.engine.decoding import Ending, Request, TokenLogprob
from rolewise.serving.backend import Delta, OverloadedError, UnavailableError
from rolewise.serving.packed import PackedIds

_ANY_VOCABULARY = 1 << 31
_BUSY = ("currently busy", "backlog limit")
"""How vLLM says that its queue is full, with the status of a server that is down."""


class UnreachableError(UnavailableError):
    """The server is not to be used until it was inspected again: it is gone, hangs, or has changed."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long to wait, in seconds.

    Raises:
        ValueError: when one is not positive.
    """

    connect: float = 5.0
    first_token: float = 120.0
    """From the request to its first token; in a long queue that takes a while."""
    next_token: float = 30.0
    """Between two tokens."""
    check: float = 5.0
    """For a health check."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name}={value} seconds must be more than 0")


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server says of its model."""

    name: str
    positions: int | None


class VllmServer:
    """A vLLM server.

    Args:
        url: where it is, as `http://host:8000`.
        packed: how the ids of its model are packed.
        stops: tokens that end an answer.
        client: the connections to use.
        timeouts: how long to wait.
    """

    def __init__(
        self, url: str, packed: PackedIds, stops: Sequence[int], client: httpx.AsyncClient, timeouts: Timeouts
    ) -> None:
        self.url = url
        self._packed, self._stops, self._client, self._timeouts = packed, frozenset(stops), client, timeouts

    async def alive(self) -> bool:
        """Whether it answers, and would run a request."""
        try:
            response = await self._client.get(f"{self.url}/health", timeout=self._timeouts.check)
        except (httpx.HTTPError, OSError):
            return False
        return response.status_code == 200

    async def inspect(self) -> Served:
        """See that it serves our model with our plugin: packed ids are let in exactly where we think that they begin
        and end, and plain ones are refused.

        Raises:
            UnreachableError: when it does not answer.
            UnavailableError: when it serves something else, with the reason.
        """
        try:
            response = await self._client.get(f"{self.url}/v1/models", timeout=self._timeouts.check)
            _raise_for(response.status_code, response.content, response.headers, self.url)
            model = response.json()["data"][0]
            name, positions = str(model["id"]), model.get("max_model_len")
        except (httpx.HTTPError, OSError) as error:
            raise UnreachableError(f"{self.url} does not answer ({type(error).__name__})") from error
        except (ValueError, LookupError, TypeError) as error:
            raise UnavailableError(f"{self.url} is no vLLM server: /v1/models answers something else") from error
        vocab_size, limit = self._packed.vocab_size, self._packed.limit
        for prompt, taken in ((vocab_size - 1, False), (vocab_size, True), (limit - 1, True), (limit, False)):
            if await self._takes(name, prompt) is not taken:
                if prompt == vocab_size - 1:
                    raise UnavailableError(
                        f"{self.url} takes a prompt without roles: its Rolewise plugin is not on (install rolewise in "
                        "vLLM's environment), or its model has a smaller vocabulary than ours"
                    )
                raise UnavailableError(
                    f"{self.url} does not serve this model: of {vocab_size} tokens and "
                    f"{self._packed.scheme.num_segments} segments, the packed id {prompt} should be "
                    f"{'taken' if taken else 'refused'}"
                )
        return Served(name=name, positions=positions if isinstance(positions, int) else None)

    async def _takes(self, name: str, prompt: int) -> bool:
        body = {"model": name, "prompt": [prompt], "max_tokens": 1, "temperature": 0}
        try:
            response = await self._client.post(
                f"{self.url}/v1/completions", json=body, timeout=self._timeouts.first_token
            )
        except (httpx.HTTPError, OSError) as error:
            raise UnreachableError(f"{self.url} does not answer ({type(error).__name__})") from error
        if response.status_code == 400:
            return False
        _raise_for(response.status_code, response.content, response.headers, self.url)
        return True

    async def stream(self, name: str, request: Request, room: int | None) -> AsyncGenerator[Delta, None]:
        """One answer of the model `name`, with room for so many tokens.

        Raises:
            UnreachableError: when the connection breaks, or nothing comes in time.
            UnavailableError: when it answers an error, or something that is no answer.
            OverloadedError: when it has no room for the request.
        """
        waits = self._timeouts
        timeout = httpx.Timeout(waits.first_token, connect=waits.connect, pool=waits.connect)
        body, headers = self._body(name, request, room), {"Content-Type": "application/json"}
        try:
            async with self._client.stream(
                "POST", f"{self.url}/v1/completions", content=body, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    _raise_for(response.status_code, await response.aread(), response.headers, self.url)
                async with contextlib.aclosing(self._deltas(response, request)) as deltas:
                    wait = waits.first_token
                    while True:
                        async with asyncio.timeout(wait):
                            delta = await anext(deltas, None)
                        if delta is None:
                            return
                        yield delta
                        wait = waits.next_token
        except (httpx.TimeoutException, TimeoutError) as error:
            raise UnreachableError(f"{self.url} did not answer in time") from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise UnreachableError(f"the connection to {self.url} broke ({type(error).__name__})") from error

    def _body(self, name: str, request: Request, room: int | None) -> bytes:
        tokens = request.max_new_tokens if room is None else min(request.max_new_tokens, room)
        body: dict[str, Any] = {
            "model": name,
            "prompt": self._packed.pack(request.input_ids, request.segment_ids),
            "max_tokens": tokens,
            # All that a model's generation_config.json would set otherwise.
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "frequency_penalty": request.frequency_penalty,
            "presence_penalty": request.presence_penalty,
            "stop_token_ids": sorted(self._stops),
            "stream": True,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if request.logprobs is not None:
            body["logprobs"] = request.logprobs
        return json.dumps(body).encode()

    async def _deltas(self, response: httpx.Response, request: Request) -> AsyncGenerator[Delta, None]:
        written = 0
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                break
            try:
                choice = _choice(json.loads(data), self.url)
                if choice is None:
                    continue
                tokens: list[int] = list(choice["token_ids"] or ())
                if not all(type(token) is int and 0 <= token < _ANY_VOCABULARY for token in tokens):
                    raise ValueError("no token ids")
                finish: str | None = choice.get("finish_reason")
                logprobs = None if request.logprobs is None else _logprobs(choice.get("logprobs"), request.logprobs)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise UnavailableError(f"{self.url} answered something that is no answer of vLLM") from error
            if logprobs is not None and len(logprobs) != len(tokens):
                raise UnavailableError(f"{self.url} gave {len(logprobs)} log-probabilities for {len(tokens)} tokens")
            written += len(tokens)
            if written > request.max_new_tokens:
                raise UnavailableError(f"{self.url} wrote more than the {request.max_new_tokens} tokens asked for")
            ending: Ending | None = None
            if finish == "stop":
                ending = "stop"
                if tokens and tokens[-1] in self._stops:
                    tokens, logprobs = tokens[:-1], logprobs[:-1] if logprobs is not None else None
            elif finish == "length":
                ending = "max_tokens" if written >= request.max_new_tokens else "model_length"
            elif finish is not None:
                raise UnavailableError(f"{self.url} gave the answer up ({finish!r:.40})")
            if tokens or ending is not None:
                yield Delta(token_ids=tokens, logprobs=logprobs, ending=ending)
            if ending is not None:
                return
        raise UnreachableError(f"{self.url} broke off in the middle of an answer")


def _choice(chunk: Any, url: str) -> Any | None:
    if "error" in chunk:
        raise UnavailableError(f"{url} failed: {_message(chunk)}")
    choices = chunk["choices"]
    return choices[0] if choices else None


def _logprobs(given: Any, most: int) -> list[TokenLogprob]:
    """vLLM's log-probabilities, in which a token is written as `token_id:17`."""
    if given is None:
        return []
    rows: list[TokenLogprob] = []
    columns: list[Any] = [given["tokens"], given["token_logprobs"], given["top_logprobs"]]
    for token, value, likeliest in zip(*columns, strict=True):
        # The token taken is always among them, whether it is one of the likeliest or not.
        best = sorted(((_token(key), _chance(other)) for key, other in likeliest.items()), key=lambda pair: -pair[1])
        rows.append((_token(token), _chance(value), best[:most]))
    return rows


def _chance(given: Any) -> float:
    """A log-probability; Python reads NaN and infinities from what is no JSON, and the last of them alone is one."""
    value = float(given)
    if math.isnan(value) or value == math.inf:
        raise ValueError(f"{value} is no log-probability")
    return value


def _token(written: str) -> int:
    kind, _, number = written.partition(":")
    if kind != "token_id":
        raise ValueError(f"{written!r} is no token id")
    return int(number)


def _raise_for(status: int, content: bytes, headers: httpx.Headers, url: str) -> None:
    """The error that stands for a response, if it is none of success."""
    if status == 200:
        return
    try:
        said = _message(json.loads(content))
    except ValueError:
        said = "no reason given"
    if status == 429 or (status == 503 and any(word in said for word in _BUSY)):
        why = "the engine has no room for another request; try again later"  # as clients read it
        raise OverloadedError(why, retry_after=_retry(headers))
    if status in (401, 403):
        raise UnreachableError(f"{url} refuses our API key (status {status}); see ROLEWISE_UPSTREAM_API_KEY")
    if status == 404:  # another model now: it must be inspected again
        raise UnreachableError(f"{url} does not know what we ask for (status 404): {said}")
    if 400 <= status < 500:
        raise UnavailableError(f"{url} refuses the request (status {status}): {said}")
    raise UnreachableError(f"{url} failed (status {status}): {said}")


def _message(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:300]


def _retry(headers: httpx.Headers) -> float:
    try:
        return min(max(float(headers.get("retry-after", "1")), 0.1), 600.0)
    except ValueError:
        return 1.0
