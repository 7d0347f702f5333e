"""Conversations from a file or standard input: JSON or JSONL, each with its place for error messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolewise.data.strict_json import Flaw, json_rows
from rolewise.messages import parse_messages

KEYS = ("messages", "tools", "documents", "meta")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One conversation of an input."""

    place: str
    """file:line, or file[index] in a JSON array."""
    messages: list[dict[str, Any]]
    """Validated messages, as given."""
    tools: list[Any] | None = None
    """Tool schemas."""
    documents: list[Any] | None = None
    """Documents for the template."""
    meta: Any = None
    """Whatever the row carries for its owner."""


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A row that is no conversation."""

    problem: str
    """What is wrong with it, with its place."""


def read_conversations(source: str, *, alpaca: bool = False) -> Iterator[Conversation | BadRow]:
    """Read conversations: one list of messages, one {"messages": [...], "tools": [...]}, an array of these, or JSONL.

    Args:
        source: a path, or - for standard input.
        alpaca: whether {"instruction", "input", "output"} rows are taken as well.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is not UTF-8 text or holds nothing, or a single JSON document is malformed.
    """
    name, text = _read(source)
    for place, value in json_rows(name, text, single=_starts_with_message):
        if isinstance(value, Flaw):
            yield BadRow(problem=f"{place}: {value.problem}")
            continue
        try:
            yield _conversation(place, value, alpaca)
        except (ValueError, TypeError) as error:
            yield BadRow(problem=f"{place}: {error}")


def _read(source: str) -> tuple[str, str]:
    name, path = source, Path(source).expanduser()
    if source == "-":
        name, content = "<stdin>", sys.stdin.buffer.read()
    elif path.is_dir():
        raise IsADirectoryError(f"{source} is a directory; name a .json or .jsonl file in it")
    elif not path.exists():
        raise FileNotFoundError(f"no file {source!r}; name a JSON or JSONL file of conversations, or - for stdin")
    else:
        content = path.read_bytes()
    try:
        return name, content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _conversation(place: str, value: Any, alpaca: bool) -> Conversation:
    row = {"messages": value} if isinstance(value, list) else value
    if not isinstance(row, dict):
        raise TypeError(f'a conversation is a list of messages or an object with "messages", not {_kind(row)}')
    fields = cast("dict[str, Any]", row)
    if alpaca and "messages" not in fields and "instruction" in fields:
        from rolewise.training.rows import parse_row

        fields = {"messages": parse_row(fields, place=place, form="alpaca").messages}
    if "messages" not in fields:
        raise ValueError(f'no "messages"; the keys are {", ".join(map(repr, fields)) or "none"}')
    if unknown := sorted(fields.keys() - set(KEYS)):
        raise ValueError(
            f"unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}; a conversation has {', '.join(KEYS)}: "
            'put what is not for the model under "meta"'
        )
    for key in ("tools", "documents"):
        if fields.get(key) is not None and not isinstance(fields[key], list):
            raise TypeError(f'"{key}" must be a list, not {_kind(fields[key])}')
    parse_messages(fields["messages"])
    return Conversation(
        place=place,
        messages=fields["messages"],
        tools=fields.get("tools") or None,
        documents=fields.get("documents") or None,
        meta=fields.get("meta"),
    )


def _starts_with_message(values: list[Any]) -> bool:
    return isinstance(values[0], dict) and "role" in values[0]


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value), type(value).__name__)
