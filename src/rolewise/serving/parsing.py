"""A chat request from bytes: strict JSON, then the models of `protocol`, then the server's own limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from rolewise.serving.answering import Sampling
from rolewise.serving.errors import ApiError
from rolewise.serving.protocol import UNKNOWN_FIELD, ChatRequest
from rolewise.serving.settings import ServerSettings
from rolewise.serving.strict import read_json

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
    try:
        value = read_json(body, max_depth=settings.max_depth)
    except ValueError as error:
        raise ApiError(400, f"the body: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    given = cast("dict[str, Any]", value)
    messages = given.get("messages")
    if isinstance(messages, list) and len(cast("list[Any]", messages)) > settings.max_messages:
        raise ApiError(
            400, f"the conversation has {len(cast('list[Any]', messages))} messages, and this server takes "
            f"{settings.max_messages}", param="messages",
        )  # fmt: skip
    try:
        request = ChatRequest.model_validate(given)
    except ValidationError as error:
        raise _first_problem(error) from None
    return ChatJob(
        model=request.model,
        messages=[_message(number, one, settings.max_depth) for number, one in enumerate(given["messages"])],
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


def _message(number: int, message: dict[str, Any], max_depth: int) -> dict[str, Any]:
    found = {key: value for key, value in message.items() if value is not None and key != "annotations"}
    if calls := found.pop("tool_calls", None):
        found["tool_calls"] = [_call(number, place, call, max_depth) for place, call in enumerate(calls)]
    elif "content" not in found:
        raise ApiError(400, f"messages[{number}] has neither content nor tool_calls", param=f"messages[{number}]")
    return found


def _call(number: int, place: int, call: dict[str, Any], max_depth: int) -> dict[str, Any]:
    where = f"messages[{number}].tool_calls[{place}].function.arguments"
    try:
        arguments = read_json(call["function"]["arguments"].strip() or "{}", max_depth=max_depth)
    except ValueError as error:
        raise ApiError(400, f"{where}: {error}", param=where) from None
    if not isinstance(arguments, dict):
        raise ApiError(400, f"{where} must be a JSON object, as text", param=where)
    function = {"name": call["function"]["name"], "arguments": cast("dict[str, Any]", arguments)}
    return {"id": call["id"], "type": "function", "function": function}


def _without_nulls(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool["function"].items() if value is not None and key != "strict"}
    return {"type": "function", "function": function}


_ROLES_BY_HAND = frozenset(
    ("prompt", "input_ids", "segment_ids", "prompt_token_ids", "prompt_embeds", "input_embeds", "chat_template",
     "add_generation_prompt", "continue_final_message", "add_special_tokens", "documents", "roles", "segments")
)  # fmt: skip
"""Fields of other servers with which a client would write what stands between messages."""

_NO_ROLES = "roles come from the structure of messages alone, and ids or template text could forge them"

_TAGS = frozenset(("system", "developer", "user", "data", "tool", "function", "assistant", "text", "parts", "none"))


def _first_problem(error: ValidationError) -> ApiError:
    """The first problem that pydantic names, in one sentence with the field's path."""
    first = error.errors(include_url=False, include_context=True)[0]
    where = _path(first["loc"])
    if first["type"] == UNKNOWN_FIELD:
        name = str(first.get("ctx", {})["field"])
        where = ".".join(filter(None, (where, name)))[:200]
        why = f": {_NO_ROLES}" if name in _ROLES_BY_HAND else ""
        return ApiError(400, f"unknown field {where}; leave it out{why}", param=where, code="unknown_field")
    message = first["msg"].removeprefix("Value error, ")
    field = ChatRequest.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    if field is not None and field.description and (message.startswith("Input should be None") or len(first["loc"]) > 1
                                                    or "literal" in first["type"]):  # fmt: skip
        message = f"{message} ({field.description.rstrip('.')})"
    return ApiError(400, f"{where}: {message}" if where else message, param=where or None)


def _path(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content[1].text`; the names of a union's members are left out."""
    path = ""
    for number, step in enumerate(loc):
        before = loc[number - 1] if number else None
        if isinstance(before, int):  # an element of a list: messages, and parts of a content, are of several kinds
            of_message = loc[0] == "messages" and number == 2
            of_union = of_message or (number > 1 and loc[number - 2] in ("content", "parts"))
        else:
            of_union = before in ("content", "stop")
        if isinstance(step, int):
            path += f"[{step}]"
        elif not (of_union and step in _TAGS):
            path += f".{step}" if path else step
    return path[:200]
