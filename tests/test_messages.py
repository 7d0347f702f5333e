"""What the message format takes, and how it refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from rolewise.messages import parse_messages, plain_json
from rolewise.roles import Role


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("system", Role.SYSTEM),
        ("developer", Role.SYSTEM),
        ("user", Role.USER),
        ("data", Role.DATA),
        ("tool", Role.DATA),
        ("function", Role.DATA),
        ("assistant", Role.OUTPUT),
    ],
)
def test_roles(kind: str, role: Role) -> None:
    (message,) = parse_messages([{"role": kind, "content": "x"}])
    assert (message.role, message.parts[0].role) == (role, role)


def test_data_part_in_a_user_message() -> None:
    parts = [{"type": "text", "text": "q"}, {"type": "data", "text": "d"}]
    (message,) = parse_messages([{"role": "user", "content": parts}])
    assert [(part.text, part.role) for part in message.parts] == [("q", Role.USER), ("d", Role.DATA)]


def test_tool_call_needs_no_content() -> None:
    (message,) = parse_messages([{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}])
    assert message.parts == ()


@pytest.mark.parametrize(
    ("messages", "error", "says"),
    [
        ([], ValueError, "empty"),
        ("hi", TypeError, "list of messages"),
        ({"role": "user", "content": "x"}, TypeError, "list of messages"),
        (["hi"], TypeError, r"messages\[0\]"),
        ([{"role": "robot", "content": "x"}], ValueError, "'robot'.*use one of"),
        ([{"role": ["user"], "content": "x"}], ValueError, "use one of"),
        ([{"content": "x"}], ValueError, "None"),
        ([{"role": "user"}], ValueError, "no content"),
        ([{"role": "user", "content": 3}], TypeError, "int"),
        ([{"role": "user", "content": b"x"}], TypeError, "bytes"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
            ValueError,
            "image_url.*send text.*'type': 'data'",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], TypeError, "int"),
        ([{"role": "assistant", "content": [{"type": "data", "text": "x"}]}], ValueError, "message of its own"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], ValueError, "only an assistant"),
        ([{"role": "user", "content": "x", "extra": object()}], TypeError, "extra.*object"),
        ([{"role": "user", "content": "x\udc00"}], ValueError, "lone surrogate.*character 1"),
        ([{"role": "user", "content": "x", "name": "\ud800"}], ValueError, "lone surrogate"),
    ],
)
def test_refusals(messages: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_messages(messages)


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5000):
        schema = {"properties": schema}
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        plain_json(schema, "tools")
