"""A chat request from bytes: strict JSON, then the models of `protocol`, then the server's own limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from rolewise.serving.answering import Sampling
from rolewise.serving.errors import ApiError
from rolewise.serving.problems import first_problem
from rolewise.serving.protocol import ChatRequest
from rolewise.serving.settings import ServerSettings
from rolewise.serving.strict import Allowance, read_json

LEAST_TEMPERATURE = 1e-4
"""Under it sampling is taking the likeliest token; dividing by less would overflow."""


@dataclass(frozen=True, kw_only=True)
class ChatJob:
    """A chat request, checked."""

    model: str
    messages: list[dict[str, Any]]
    """As `rolewise.render` takes them: no nulls, the arguments of calls as objects."""
    tools: list[dict[str, Any]]
    enable_thinking: bool | None
    sampling: Sampling
    choices: int
    stream: bool
    include_usage: bool

    def seed_of(self, choice: int) -> int | None:
        """The seed of one of its answers, within 64 bits."""
        seed = self.sampling.seed
        return None if seed is None else (seed + choice + 2**63) % 2**64 - 2**63


def parse_chat(body: bytes, settings: ServerSettings) -> ChatJob:
    """What a body asks for.

    Raises:
        ApiError: when it is no strict JSON, or no request that this server answers; it names the field.
    """
    allowance = Allowance(settings.max_values)
    try:
        value = read_json(body, max_depth=settings.max_depth, allowance=allowance)
    except ValueError as error:
        raise ApiError(400, f"the body: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    given = cast("dict[str, Any]", value)
    _check_numbers(given, settings)
    try:
        request = ChatRequest.model_validate(given)
    except ValidationError as error:
        raise first_problem(error) from None
    return ChatJob(
        model=request.model,
        messages=[_message(number, one, settings.max_depth, allowance) for number, one in enumerate(given["messages"])],
        tools=[_without_nulls(tool) for tool in given.get("tools") or ()] if request.tool_choice != "none" else [],
        enable_thinking=None if request.chat_template_kwargs is None else request.chat_template_kwargs.enable_thinking,
        sampling=_sampling(request, settings),
        choices=_at_most(request.n or 1, settings.max_choices, "n"),
        stream=bool(request.stream),
        include_usage=request.stream_options is not None and bool(request.stream_options.include_usage),
    )


def _sampling(request: ChatRequest, settings: ServerSettings) -> Sampling:
    name = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    wanted = request.max_completion_tokens or request.max_tokens
    temperature = 1.0 if request.temperature is None else request.temperature
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    return Sampling(
        max_tokens=None if wanted is None else _at_most(wanted, settings.max_completion_tokens, name),
        temperature=temperature if temperature >= LEAST_TEMPERATURE else 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=request.seed,
        stop=stop,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        frequency_penalty=request.frequency_penalty or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
    )


def _at_most(value: int, limit: int, name: str) -> int:
    if value > limit:
        raise ApiError(400, f"{name} is {value}, and this server allows {limit}", param=name)
    return value


def _check_numbers(given: dict[str, Any], settings: ServerSettings) -> None:
    """Refuse too many of anything before each of them is looked at."""
    messages, tools = _list(given.get("messages")), _list(given.get("tools"))
    fields = [cast("dict[str, Any]", one) for one in messages[: settings.max_messages] if isinstance(one, dict)]
    parts = sum(len(_list(one.get("content"))) + len(_list(one.get("tool_calls"))) for one in fields)
    for number, limit, what, param in (
        (len(messages), settings.max_messages, "messages", "messages"),
        (parts, settings.max_parts, "parts of contents and calls of tools", "messages"),
        (len(tools), settings.max_tools, "tools", "tools"),
    ):
        if number > limit:
            raise ApiError(400, f"the request has {number} {what}, and this server takes {limit}; send fewer",
                           param=param)  # fmt: skip


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _message(number: int, message: dict[str, Any], max_depth: int, allowance: Allowance) -> dict[str, Any]:
    found = {key: value for key, value in message.items() if value is not None and key != "annotations"}
    if calls := found.pop("tool_calls", None):
        found["tool_calls"] = [_call(number, place, call, max_depth, allowance) for place, call in enumerate(calls)]
    elif "content" not in found:
        raise ApiError(400, f"messages[{number}] has neither content nor tool_calls; give it one of them",
                       param=f"messages[{number}]")  # fmt: skip
    return found


def _call(number: int, place: int, call: dict[str, Any], max_depth: int, allowance: Allowance) -> dict[str, Any]:
    where = f"messages[{number}].tool_calls[{place}].function.arguments"
    try:
        text = call["function"]["arguments"].strip() or "{}"
        arguments = read_json(text, max_depth=max_depth, allowance=allowance)
    except ValueError as error:
        raise ApiError(400, f"{where}: {error}", param=where) from None
    if not isinstance(arguments, dict):
        raise ApiError(400, f"{where} must be a JSON object, as text", param=where)
    function = {"name": call["function"]["name"], "arguments": cast("dict[str, Any]", arguments)}
    return {"id": call["id"], "type": "function", "function": function}


def _without_nulls(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool["function"].items() if value is not None and key != "strict"}
    return {"type": "function", "function": function}
