"""From validated messages to what a chat template is given, every string of it a leaf with a role."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from rolewise.messages import REASONING_FIELDS, Message, Part
from rolewise.rendering.markers import DOCUMENTS, TOOLS, Leaf, materialise
from rolewise.roles import Role

SEPARATOR = "\n\n"
"""Between a question and its data where they share a user turn."""

# Words that templates branch on. They are no content: whoever writes a schema can only choose among them.
_STRUCTURAL_TYPES = frozenset(
    ["function", "object", "string", "array", "number", "integer", "boolean", "null", "text", "custom"]
)
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_\-]{0,63}")

# Under these keys of a JSON schema stand names that its author chose.
_NAMING_KEYS = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"])


class _Keys(Enum):
    """What the keys of a dict are."""

    SCHEMA = "words that templates know"
    CHOSEN = "names that somebody chose, their values schemas again"
    ALL = "names that somebody chose, all the way down"


@dataclass
class Turn:
    """One message as the template sees it."""

    kind: str
    role: Role
    label: str
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    has_content: bool = True
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    holds_data: bool = False

    def written(self, write: Callable[[Leaf], str], as_parts: bool) -> dict[str, Any]:
        """The message for the template, each leaf written by `write`."""
        message: dict[str, Any] = {"role": self.kind}
        if self.has_content:
            text = "".join(map(write, self.leaves))
            message["content"] = [{"type": "text", "text": text}] if as_parts else text
        for name, value in self.fields.items():
            message[name] = materialise(value, write)
        return message


@dataclass
class Draft:
    """A conversation ready to be rendered."""

    turns: list[Turn]
    leaves: list[Leaf]
    tools: list[Any] | None
    documents: list[Any] | None


@dataclass(frozen=True)
class Layout:
    """How a template takes the messages that not every template knows."""

    data: str
    """"header" when a data message has a frame of its own, "inline" when it goes into the user turn."""
    tool: bool
    """Whether the template renders tool messages; where not they are data like any other."""
    developer: bool
    """Whether the template names the developer role; where not it is a system message."""
    arguments_as_text: bool = False
    """Whether the template wants the arguments of a tool call as JSON text."""


class _Builder:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.leaves: list[Leaf] = []
        self.turns: list[Turn] = []

    def leaf(self, text: str, role: Role, owner: int, label: str, required: bool) -> Leaf:
        leaf = Leaf(len(self.leaves), text, role, owner, label, required)
        self.leaves.append(leaf)
        return leaf

    def add(self, message: Message) -> None:
        kind = self._kind(message)
        label = f"messages[{message.index}]"
        if kind in ("data", "inline") and not any(part.text for part in message.parts):
            return  # but not the empty result of a call, which the template frames as such
        if kind == "inline":
            self._add_inline(message, label)
            return
        last = self.turns[-1] if self.turns else None
        if kind == "user" and last is not None and last.holds_data:
            self._separate(last, label)
            self._write_parts(last, len(self.turns) - 1, message.parts, label, True)
            self._add_fields(last, len(self.turns) - 1, message, label)
            return
        turn = Turn(kind, message.role, label, has_content=bool(message.parts) or message.role is Role.OUTPUT)
        self.turns.append(turn)
        optional = message.role is Role.OUTPUT and bool(message.extra)
        if not (optional and not any(part.text for part in message.parts)):
            self._write_parts(turn, len(self.turns) - 1, message.parts, label, not optional)
        self._add_fields(turn, len(self.turns) - 1, message, label)

    def _kind(self, message: Message) -> str:
        match message.kind:
            case "developer":
                return "developer" if self.layout.developer else "system"
            case "data":
                return "data" if self.layout.data == "header" else "inline"
            case "tool" | "function":
                return "tool" if self.layout.tool else "inline"
            case kind:
                return kind

    def _add_inline(self, message: Message, label: str) -> None:
        if self.turns and self.turns[-1].kind == "user":
            self._separate(self.turns[-1], label)
        else:
            self.turns.append(Turn("user", Role.USER, label))
        self.turns[-1].holds_data = True
        self._write_parts(self.turns[-1], len(self.turns) - 1, message.parts, label, True)

    def _separate(self, turn: Turn, label: str) -> None:
        turn.leaves.append(self.leaf(SEPARATOR, Role.USER, len(self.turns) - 1, label, False))

    def _write_parts(self, turn: Turn, owner: int, parts: Iterable[Part], label: str, required: bool) -> None:
        for part in parts:
            turn.leaves.append(self.leaf(part.text, part.role, owner, label, required and bool(part.text)))

    def _add_fields(self, turn: Turn, owner: int, message: Message, label: str) -> None:
        extra = dict(message.extra)
        reasoning = next((extra[name] for name in REASONING_FIELDS if name in extra), None)
        for name in REASONING_FIELDS:
            extra.pop(name, None)
        if reasoning is not None:
            leaf = self.walk(reasoning, turn.role, owner, f"{label}[reasoning]", {})
            # Under every name that a template may read.
            turn.fields |= {"reasoning_content": leaf, "thinking": leaf}
        for name, value in extra.items():
            place = f"{label}[{name!r}]"
            if name == "tool_calls" and self.layout.arguments_as_text:
                value = [_with_text_arguments(call) for call in value]
            turn.fields[name] = self.walk(value, turn.role, owner, place, {}, name == "tool_calls")

    def walk(
        self,
        value: Any,
        role: Role,
        owner: int,
        label: str,
        seen: dict[str, Leaf],
        required: bool = False,
        keys: _Keys = _Keys.SCHEMA,
    ) -> Any:
        """`value` with a leaf for each of its strings; equal strings share one, so that they stay equal."""
        if isinstance(value, str):
            return self._shared(value, role, owner, label, seen, required)
        if isinstance(value, list):
            items = enumerate(cast("list[Any]", value))
            inner = keys if keys is _Keys.ALL else _Keys.SCHEMA
            return [self.walk(item, role, owner, f"{label}[{n}]", seen, required, inner) for n, item in items]
        if isinstance(value, dict):
            return self._walk_dict(cast("dict[str, Any]", value), role, owner, label, seen, required, keys)
        return value

    def _walk_dict(
        self,
        value: dict[str, Any],
        role: Role,
        owner: int,
        label: str,
        seen: dict[str, Leaf],
        required: bool,
        keys: _Keys,
    ) -> dict[Any, Any]:
        # A key that somebody chose is a string like any other: a template that writes "<" + key + ">" must not
        # make a control token of it. Leaves are numbered in the order in which a template would sort them.
        chosen = [key for key in value if keys is not _Keys.SCHEMA or not _PLAIN_KEY.fullmatch(key)]
        for key in sorted(chosen, key=lambda key: (key.lower(), key)):
            self._shared(key, role, owner, f"{label}[{key!r}]", seen, False)
        node: dict[Any, Any] = {}
        for key, item in value.items():
            place = f"{label}[{key!r}]"
            name = seen[key] if key in chosen else key
            if keys is _Keys.SCHEMA and key == "type" and isinstance(item, str) and item in _STRUCTURAL_TYPES:
                node[name] = item
                continue
            inner = _Keys.SCHEMA
            if keys is _Keys.ALL or (keys is _Keys.SCHEMA and key == "arguments"):
                inner = _Keys.ALL
            elif keys is _Keys.SCHEMA and key in _NAMING_KEYS:
                inner = _Keys.CHOSEN
            wanted = required and not (keys is _Keys.SCHEMA and key in ("id", "type"))
            node[name] = self.walk(item, role, owner, place, seen, wanted, inner)
        return node

    def _shared(self, text: str, role: Role, owner: int, label: str, seen: dict[str, Leaf], required: bool) -> Leaf:
        if text not in seen:
            seen[text] = self.leaf(text, role, owner, label, required and bool(text))
        elif required:
            seen[text].required = bool(text)
        return seen[text]


def _with_text_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(cast("dict[str, Any]", function).get("arguments"), dict):
        return call
    fields = cast("dict[str, Any]", function)
    return call | {"function": fields | {"arguments": json.dumps(fields["arguments"], ensure_ascii=False)}}


def draft(
    messages: list[Message],
    layout: Layout,
    tools: list[Any] | None = None,
    documents: list[Any] | None = None,
    tools_role: Role = Role.SYSTEM,
) -> Draft:
    """Lay a conversation out for a template.

    A data message that has no frame of its own goes into the user turn before it, or into one of its own,
    as a DATA leaf. An empty data message is left out (as the ISE paper's code does).

    Raises:
        ValueError: when nothing is left to render.
    """
    builder = _Builder(layout)
    for message in messages:
        builder.add(message)
    if not builder.turns:
        raise ValueError("the conversation holds nothing but empty data messages; give at least one message with text")
    schemas = given = None
    if tools:
        seen: dict[str, Leaf] = {}
        schemas = [builder.walk(tool, tools_role, TOOLS, f"tools[{n}]", seen) for n, tool in enumerate(tools)]
        for schema, tool in zip(schemas, tools, strict=True):
            function, source = schema.get("function", schema), tool.get("function", tool)
            if isinstance(source, dict) and isinstance(function.get("name"), Leaf):
                function["name"].required = True
    if documents:
        given = [
            builder.walk(document, Role.DATA, DOCUMENTS, f"documents[{n}]", {}) for n, document in enumerate(documents)
        ]
    return Draft(builder.turns, builder.leaves, schemas, given)
