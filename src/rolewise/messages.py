"""The chat message format that Rolewise accepts, validated before anything is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rolewise.roles import Role

MESSAGE_ROLES: dict[str, Role] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "data": Role.DATA,
    "tool": Role.DATA,
    "function": Role.DATA,
    "assistant": Role.OUTPUT,
}
"""The role that each message role has. Nothing but this table, and `data` parts, ever decides a role."""

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""The names under which an assistant message may carry its reasoning; the first that is set counts."""

MAX_DEPTH = 100
"""How deep the values in a message or a tool schema may be nested."""


@dataclass(frozen=True)
class Part:
    """A stretch of a message's content that has one role."""

    text: str
    role: Role


@dataclass(frozen=True)
class Message:
    """One validated message of a conversation."""

    index: int
    """Where it stands in the conversation as given."""
    kind: str
    """Its role as given: a key of `MESSAGE_ROLES`."""
    role: Role
    parts: tuple[Part, ...]
    """The content; empty when the message has none (an assistant's tool call)."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Whatever else the message carries (tool calls, reasoning, a name), as plain JSON values."""


def parse_messages(messages: Any) -> list[Message]:
    """Validate a conversation: a list of OpenAI-style dicts.

    `content` is a string or a list of parts. A `{"type": "text", "text": ...}` part has its message's role; a
    `{"type": "data", "text": ...}` part in a system or user message is DATA.

    Raises:
        TypeError: when the conversation, a message or a value has the wrong type.
        ValueError: when the conversation is empty, a role is unknown, content is not text, or a string holds
            a lone surrogate. Each names the message and the remedy.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TypeError(f"a conversation must be a list of messages, not {type(messages).__name__}")
    items = cast("Sequence[Any]", messages)
    if not items:
        raise ValueError("the conversation is empty; give at least one message")
    return [_parse_message(index, item) for index, item in enumerate(items)]


def plain_json(value: Any, where: str, depth: int = 0) -> Any:
    """`value` rebuilt from plain JSON types, its strings checked.

    Raises:
        TypeError: when it holds anything else.
        ValueError: when a string holds a lone surrogate, or it is nested too deeply for a template.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"{where[:40]}… is nested more than {MAX_DEPTH} levels deep; flatten it, or leave it out")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return checked_text(value, where)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        result: dict[str, Any] = {}
        for key, item in pairs.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys must be strings")
            result[checked_text(key, where)] = plain_json(item, f"{where}[{key!r}]", depth + 1)
        return result
    if isinstance(value, (list, tuple)):
        values = cast("Sequence[Any]", value)
        return [plain_json(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(values)]
    raise TypeError(f"{where} is of type {type(value).__name__}; use plain JSON values (text, numbers, lists, dicts)")


def checked_text(text: str, where: str) -> str:
    """`text` as an exact `str`, refused when it cannot be encoded as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds the lone surrogate {text[error.start]!r} at character {error.start}, which no tokenizer "
            "can encode; replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None
    return text if type(text) is str else str.__str__(text)


def _parse_message(index: int, item: Any) -> Message:
    where = f"messages[{index}]"
    if not isinstance(item, Mapping):
        raise TypeError(f"{where} must be a dict with 'role' and 'content', not {type(item).__name__}")
    fields = dict(cast("Mapping[str, Any]", item))
    kind = fields.pop("role", None)
    if not isinstance(kind, str) or kind not in MESSAGE_ROLES:
        raise ValueError(f"{where} has the role {kind!r}; use one of {', '.join(MESSAGE_ROLES)}")
    role = MESSAGE_ROLES[kind]
    content = fields.pop("content", None)
    extra: dict[str, Any] = {
        checked_text(str(key), where): plain_json(value, f"{where}[{key!r}]")
        for key, value in fields.items()
        if value is not None
    }
    _check_tool_calls(extra, kind, where)
    if content is None:
        if not (role is Role.OUTPUT and ("tool_calls" in extra or any(key in extra for key in REASONING_FIELDS))):
            raise ValueError(f"{where} ({kind}) has no content; give it text, or leave the message out")
        return Message(index, kind, role, (), extra)
    return Message(index, kind, role, _parse_content(content, kind, role, where), extra)


def _parse_content(content: Any, kind: str, role: Role, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Part(checked_text(content, f"{where}['content']"), role),)
    if isinstance(content, (bytes, Mapping)) or not isinstance(content, Sequence):
        raise TypeError(
            f"{where} has content of type {type(content).__name__}; it must be text or a list of text parts"
        )
    parts: list[Part] = []
    for number, part in enumerate(cast("Sequence[Any]", content)):
        place = f"{where}['content'][{number}]"
        if not isinstance(part, Mapping):
            raise TypeError(
                f"{place} must be a dict such as {{'type': 'text', 'text': ...}}, not {type(part).__name__}"
            )
        fields = cast("Mapping[str, Any]", part)
        part_type, text = fields.get("type"), fields.get("text")
        if part_type not in ("text", "data"):
            raise ValueError(
                f"{place} is of type {part_type!r}; only 'text' and 'data' parts are supported: send text, and mark "
                "text that you did not write as {'type': 'data', 'text': ...}"
            )
        if not isinstance(text, str):
            raise TypeError(f"{place} needs a string under 'text', not {type(text).__name__}")
        if part_type == "data" and role not in (Role.SYSTEM, Role.USER, Role.DATA):
            raise ValueError(f"{place} is data inside an {kind} message; put it in a message of its own")
        parts.append(Part(checked_text(text, place), Role.DATA if part_type == "data" else role))
    return tuple(parts) or (Part("", role),)


def _check_tool_calls(extra: dict[str, Any], kind: str, where: str) -> None:
    calls = extra.get("tool_calls")
    if calls is None:
        return
    if kind != "assistant":
        raise ValueError(f"{where} ({kind}) has tool_calls; only an assistant message can")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in cast("list[Any]", calls)):
        raise TypeError(f"{where}['tool_calls'] must be a list of dicts")
    if not calls:
        del extra["tool_calls"]
