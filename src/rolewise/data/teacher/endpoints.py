"""Where calls go: an OpenAI-compatible endpoint, or a model of inspect_ai."""

from __future__ import annotations

import os
import re
from types import TracebackType
from typing import Any, Protocol, Self

from rolewise.data.teacher.checking import INSTALL, read_answer, sent_schema
from rolewise.data.teacher.config import TeacherConfig, check_url
from rolewise.data.teacher.failures import Again, Failure, failure_of
from rolewise.data.teacher.requests import Answer, Request
from rolewise.display import safe_text


class Endpoint(Protocol):
    """What answers requests; used with `async with`, in the event loop of the calls."""

    name: str
    """For messages."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def answer(self, request: Request) -> Answer | Failure:
        """One call, without repetitions."""
        ...


def endpoint_of(config: TeacherConfig, key: str) -> Endpoint:
    """The endpoint that a configuration names.

    Raises:
        ImportError: when its library is not installed; it names the extra.
        ValueError: when there is no such model, or the address is none.
    """
    if config.provider == "inspect":
        from rolewise.data.teacher.inspect_endpoint import InspectEndpoint

        return InspectEndpoint(config)
    return OpenAIEndpoint(config, key)


class OpenAIEndpoint:
    """An OpenAI-compatible endpoint.

    Args:
        config: its address, and how it is asked.
        key: the secret to show it.

    Raises:
        ImportError: when openai is not installed; it names the extra.
        ValueError: when the address in the environment is none.
    """

    def __init__(self, config: TeacherConfig, key: str) -> None:
        try:
            import openai
        except ImportError as error:
            raise ImportError(INSTALL) from error
        self._openai = openai
        self._config, self._key = config, key
        base_url = config.base_url or os.environ.get("OPENAI_BASE_URL") or None
        if base_url is not None:
            check_url(base_url, "OPENAI_BASE_URL")
        # Repetitions are ours, not the SDK's: they count towards the limits, and end when the run does.
        self._client = openai.AsyncOpenAI(api_key=key, base_url=base_url, timeout=config.timeout, max_retries=0)
        self.name = str(self._client.base_url).rstrip("/")

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def answer(self, request: Request) -> Answer | Failure:
        """See `Endpoint.answer`."""
        config = self._config
        try:
            raw = await self._client.chat.completions.with_raw_response.create(**self._body(request))
            answer = read_answer(raw.http_response.content, request)
            return answer or Again(why="the server sent something other than a chat completion")
        except self._openai.APIStatusError as error:
            return failure_of(error.status_code, error.body, error.response.headers, config, self.name, self._key)
        except self._openai.APITimeoutError:
            raise TimeoutError from None
        except self._openai.APIConnectionError as error:
            cause = error.__cause__ or error
            told = safe_text(str(cause).replace(self._key, "[key]")) or type(cause).__name__
            return Again(why=f"no connection, or broken off: {told}")

    def _body(self, request: Request) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {
            "model": config.model,
            "messages": [dict(message) for message in request.messages],
            config.max_tokens_name: config.max_tokens,
        }
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if request.schema is not None and config.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif request.schema is not None and config.structured == "json_schema":
            schema = {"name": schema_name(request), "schema": sent_schema(request.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


def schema_name(request: Request) -> str:
    """The prompt's name in the letters that endpoints allow."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", request.prompt)[:64] or "answer"
