"""A model of inspect_ai as the teacher: any of its providers, ours included."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Self

from rolewise.data.teacher.checking import sent_schema
from rolewise.data.teacher.config import TeacherConfig
from rolewise.data.teacher.endpoints import schema_name
from rolewise.data.teacher.failures import Again, Failure, Lost
from rolewise.data.teacher.requests import Answer, Reason, Request, estimated_prompt, estimated_tokens
from rolewise.display import safe_text

_FINISHES = {"max_tokens": "length", "content_filter": "content_filter"}
_SECRET = re.compile(r"(?i)\b(sk-|bearer |key[=:] ?)[\w.-]{8,}")


class InspectEndpoint:
    """A model of inspect_ai. Its provider finds its key by itself, in the environment.

    Args:
        config: its name, `provider/model`, and how it is asked.

    Raises:
        ImportError: when inspect_ai, or what its provider needs, is not installed.
        ValueError: when there is no such provider or model.
    """

    def __init__(self, config: TeacherConfig) -> None:
        try:
            from inspect_ai.model import get_model
        except ImportError as error:
            raise ImportError(
                "provider: inspect needs inspect_ai; in your clone of Rolewise: pip install -e '.[eval]'"
            ) from error
        from inspect_ai._util.error import PrerequisiteError

        try:
            # Not one that others share: it is used, and closed, in an event loop of its own.
            self._model = get_model(config.model, base_url=config.base_url, memoize=False)
        except (PrerequisiteError, ValueError) as error:
            raise ValueError(f"inspect_ai has no model {config.model!r} for us: {_harmless(error)}") from None
        self._config = config
        self.name = config.model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._model.__aexit__(kind, error, trace)

    async def answer(self, request: Request) -> Answer | Failure:
        """See `Endpoint.answer`."""
        from inspect_ai.model import ChatMessageSystem, ChatMessageUser

        kinds = {"system": ChatMessageSystem, "user": ChatMessageUser}
        messages: list[Any] = [kinds[one["role"]](content=one["content"]) for one in request.messages]
        try:
            output = await self._model.generate(messages, config=self._settings(request))
        except Exception as error:
            last = getattr(error, "last_attempt", None)
            cause = error if last is None else last.exception() or error
            if self._model.should_retry(cause):
                return Again(why=_harmless(cause))
            return ValueError(f"{self.name} refuses the request: {_harmless(cause)}")
        if output.stop_reason == "model_length":
            return Lost(reason=Reason.TOO_LONG, why=_harmless(output.error or "too long for the model"))
        if output.error or output.empty:
            return Again(why=_harmless(output.error or "the model gave no answer"))
        usage, text = output.usage, output.completion
        return Answer(
            text=text,
            refusal=None,
            finish=_FINISHES.get(output.stop_reason, output.stop_reason),
            prompt_tokens=usage.input_tokens if usage else estimated_prompt(request),
            completion_tokens=usage.output_tokens if usage else estimated_tokens(text),
            estimated=usage is None,
            model=output.model,
        )

    def _settings(self, request: Request) -> Any:
        from inspect_ai.model import GenerateConfig, ResponseSchema
        from inspect_ai.util import JSONSchema

        config, shape = self._config, None
        if request.schema is not None and config.structured == "json_schema":
            schema = JSONSchema.model_validate(sent_schema(request.schema))
            shape = ResponseSchema(name=schema_name(request), json_schema=schema, strict=True)
        return GenerateConfig(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            response_schema=shape,
            max_retries=0,  # repetitions are ours
            max_connections=config.concurrency,
        )


def _harmless(error: object) -> str:
    """What went wrong, in one line, and without what looks like a key."""
    text = " ".join(str(error).split()) or type(error).__name__
    return safe_text(_SECRET.sub("[key]", text))[:300]
