"""Between inspect_ai's messages and ours, structure kept: a role never passes through text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
)
from inspect_ai.tool import ToolCall, ToolInfo

ROLE_KEY = "rolewise_role"
"""The key in a user message's metadata that makes it DATA: `{"rolewise_role": "data"}`."""


def to_rolewise(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """inspect_ai's messages as OpenAI-style dicts with our roles.

    A tool's result is DATA, its error too, and so is a user message whose metadata says `{"rolewise_role": "data"}`.

    Raises:
        ValueError: for content that is not text, or another `rolewise_role`.
    """
    return [_to_rolewise(number, message) for number, message in enumerate(messages)]


def _to_rolewise(number: int, message: ChatMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role}
    content, reasoning = _content(number, message)
    if isinstance(message, ChatMessageUser) and message.metadata and ROLE_KEY in message.metadata:
        role = message.metadata[ROLE_KEY]
        if role not in ("data", "user"):
            raise ValueError(f"messages[{number}] has {ROLE_KEY}={role!r}; it must be 'data' or 'user'")
        found["role"] = role
    if isinstance(message, ChatMessageAssistant):
        if reasoning:
            found["reasoning_content"] = reasoning
        if message.tool_calls:
            found["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
    if isinstance(message, ChatMessageTool):
        if message.error is not None:
            content = _joined(message.error.message, content)
        found |= {
            key: value for key, value in (("name", message.function), ("tool_call_id", message.tool_call_id)) if value
        }
    if content or "tool_calls" not in found:
        found["content"] = content
    return found


def _joined(first: str, content: str | list[dict[str, str]]) -> str | list[dict[str, str]]:
    if isinstance(content, list):
        return [{"type": "text", "text": f"{first}\n"}, *content]
    return f"{first}\n{content}" if content else first


def _content(number: int, message: ChatMessage) -> tuple[str | list[dict[str, str]], str]:
    if isinstance(message.content, str):
        return message.content, ""
    parts: list[dict[str, str]] = []
    reasoning: list[str] = []
    for part in message.content:
        if isinstance(part, ContentText):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ContentReasoning):
            reasoning.append(part.reasoning)
        else:
            raise ValueError(f"messages[{number}] has {part.type} content; the rolewise provider takes text only")
    return (parts[0]["text"] if len(parts) == 1 else parts or ""), "\n".join(reasoning)


def to_schemas(tools: Sequence[ToolInfo]) -> list[dict[str, Any]]:
    """inspect_ai's tools as the JSON schemas that chat templates take."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.model_dump(exclude_none=True),
            },
        }
        for tool in tools
    ]


def from_rolewise(
    messages: Sequence[Mapping[str, Any]], *, data_role: str = "user", with_calls: bool = False
) -> list[ChatMessage]:
    """Our conversations (up to the answer that is asked for) as any model of inspect_ai can take them.

    Args:
        messages: dicts with `role` and `content`, as `rolewise.samples.to_messages` makes them.
        data_role: what data becomes: a `user` message, marked as data for our provider, or the result of a `tool`
            call that fetched it, for models that know no other untrusted role.
        with_calls: whether a tool's result that no call asked for gets one before it; APIs refuse it without, and
            many templates cannot render one.

    Raises:
        ValueError: for another `data_role`, or a role that has no counterpart.
    """
    if data_role not in ("user", "tool"):
        raise ValueError(f"data_role={data_role!r} must be 'user' or 'tool'")
    found: list[ChatMessage] = []
    called: set[str] = set()
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "system":
            found.append(ChatMessageSystem(content=content))
        elif role == "user":
            found.append(ChatMessageUser(content=content))
        elif role == "data" and data_role == "user":
            found.append(ChatMessageUser(content=content, metadata={ROLE_KEY: "data"}))
        elif role == "data":
            id = f"call_{number}"
            call = ToolCall(id=id, function="read_data", arguments={})
            found.append(ChatMessageAssistant(content="", tool_calls=[call]))
            found.append(ChatMessageTool(content=content, tool_call_id=id, function="read_data"))
        elif role == "assistant":
            calls = [_asked(call) for call in message.get("tool_calls") or ()]
            called.update(call.id for call in calls)
            found.append(ChatMessageAssistant(content=content, tool_calls=calls or None))
        elif role == "tool":
            id, name = message.get("tool_call_id") or f"call_{number}", message.get("name") or "read_data"
            if with_calls and id not in called:
                call = ToolCall(id=id, function=name, arguments={})
                found.append(ChatMessageAssistant(content="", tool_calls=[call]))
            found.append(ChatMessageTool(content=content, tool_call_id=id, function=name))
        else:
            raise ValueError(f"messages[{number}] has the role {role!r}; use system, user, data, tool or assistant")
    return found


def _asked(call: Mapping[str, Any]) -> ToolCall:
    function: Mapping[str, Any] = call["function"]
    return ToolCall(id=call["id"], function=function["name"], arguments=dict(function.get("arguments") or {}))
