"""How a model is told of tools, and how its calls are read: as its own chat template has it, or in a plain form.

A template's form is never guessed from a model's name. A call of ours is rendered with it, and the reader that gets
that call back is the one to use. What nobody can read is refused, since calls would pass for answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rolewise.rendering import render
from rolewise.tools.calls import CALL_BEGIN, CALL_END, READERS, UNKNOWN, Call, Reader, call_of, read_tagged

CHOICES = ("auto", "plain")

Message = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What an answer is made of."""

    text: str
    thoughts: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class ToolFormat:
    """One way to tell a model of tools.

    `name` is "plain", or a reader's: "tagged", "json", "mistral", "template" (the tokenizer's `response_template`), or
    "unread".
    """

    name: str
    reader: Callable[[str, str, Sequence[Mapping[str, Any]]], Said]
    refusal: str = ""
    """Why tools cannot be offered; earlier calls can be rendered all the same."""

    def prompt(self, messages: Sequence[Message], schemas: Sequence[Mapping[str, Any]]) -> tuple[list[Message], Any]:
        """The messages and the tools for `rolewise.render`.

        Raises:
            ValueError: when tools are offered in a form whose calls cannot be read.
        """
        if schemas and self.refusal:
            raise ValueError(self.refusal)
        if self.name == "plain":
            return _plain_messages(messages, schemas), None
        return list(messages), list(schemas) or None

    def read(self, text: str, opening: str, schemas: Sequence[Mapping[str, Any]]) -> Said:
        """Take an answer apart.

        Args:
            text: what the model wrote, special tokens and all.
            opening: the generation prompt before it, in which a template may have begun a thought.
            schemas: the tools that it was told of.
        """
        return self.reader(text, opening, schemas)


def split_thoughts(text: str, opening: str) -> tuple[str, str] | None:
    """The thought (`<think>` … `</think>`) with which an answer begins, and the rest of it.

    None when it was cut within its thought.
    """
    begun = text.lstrip().startswith(_THINK)
    if not begun and not opening.rstrip().endswith(_THINK):
        return "", text
    thoughts, end, rest = text.partition(_END_THINK)
    if not end:
        return None
    return (thoughts.lstrip().removeprefix(_THINK) if begun else thoughts).strip(), rest.lstrip()


def tool_format(tokenizer: Any, choice: str = "auto") -> ToolFormat:
    """How the model of this tokenizer takes tools.

    Args:
        tokenizer: its tokenizer.
        choice: "auto" for its chat template's own way, and the plain one where it has none; "plain" for that always.

    Raises:
        ValueError: for another `choice`.
    """
    if choice not in CHOICES:
        raise ValueError(f"tool_format={choice!r} must be one of {', '.join(CHOICES)}")
    plain = ToolFormat("plain", _with_thoughts(read_tagged))
    calls = [] if choice == "plain" else _own_calls(tokenizer)
    if not calls:
        return plain
    known = [ToolFormat(name, _with_thoughts(reader)) for name, reader in READERS.items()]
    if getattr(tokenizer, "response_template", None) is not None:
        # Last: it reads all calls or none, and may cut one at a tag that an argument quotes.
        known.append(ToolFormat("template", _parsed_by(tokenizer)))
    for one in known:
        if any(one.read(call, "", _PROBE_TOOLS).calls == (Call("lookup", _PROBE_ARGUMENTS),) for call in calls):
            return one
    refusal = (
        f"this model's chat template writes tool calls in a form that Rolewise cannot read: {calls[0].strip()[:99]!r}. "
        "Give its tokenizer a response_template (trl.chat_template_utils.add_response_schema knows many) and save it, "
        "or tell the model of tools in plain text: -M tool_format=plain"
    )
    return ToolFormat("unread", _with_thoughts(_unread), refusal)


_THINK, _END_THINK = "<think>", "</think>"
_PROBE_ARGUMENTS = {"key": "value", "count": 3}
_PROBE_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look a key up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "description": "The key."},
                    "count": {"type": "integer", "description": "How many."},
                },
                "required": ["key", "count"],
            },
        },
    }
]
_PROBE_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "lookup", "arguments": _PROBE_ARGUMENTS},
}

_PLAIN_SYSTEM = (
    "You can use tools. To use one, end your message with a call of this form:\n"
    f'{CALL_BEGIN}{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}{CALL_END}\n'
    "Its result comes in the next message. When you need no tool, answer as usual.\n"
    "The tools, and the JSON schemas of their arguments:"
)


def _own_calls(tokenizer: Any) -> list[str]:
    """What an assistant writes to call a tool, by the tokenizer's chat template; empty when it renders no tools.

    Once with the result after it and once without: some templates end the turn in the one case only.
    """
    messages: list[Message] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [_PROBE_CALL]},
        {"role": "tool", "name": "lookup", "tool_call_id": "call00001", "content": "b"},
    ]
    try:
        calls = [_written(tokenizer, messages[:count], _PROBE_TOOLS) for count in (2, 3)]
        answer = _written(tokenizer, [messages[0], {"role": "assistant", "content": "c"}], None)
    except ValueError:
        return []
    end_of_turn = answer.rpartition("c")[2]
    return [call.removesuffix(end_of_turn) for call in calls]


def _written(tokenizer: Any, messages: list[Message], tools: list[dict[str, Any]] | None) -> str:
    one = render(tokenizer, messages, tools=tools)
    return str(tokenizer.decode([token for token, own in zip(one.input_ids, one.loss_mask, strict=True) if own]))


def _unread(text: str, schemas: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]]:
    return text, []


def _with_thoughts(reader: Reader) -> Callable[[str, str, Sequence[Mapping[str, Any]]], Said]:
    """A reader that leaves out the thought with which an answer begins."""

    def read(text: str, opening: str, schemas: Sequence[Mapping[str, Any]]) -> Said:
        if (split := split_thoughts(text, opening)) is None:
            return Said(text)  # what a thought says of calls is none
        thoughts, rest = split
        rest, calls = reader(rest, schemas)
        return Said(rest, thoughts, tuple(calls))

    return read


def _parsed_by(tokenizer: Any) -> Callable[[str, str, Sequence[Mapping[str, Any]]], Said]:
    """A reader that leaves it to the tokenizer's own `response_template`."""

    def read(text: str, opening: str, schemas: Sequence[Mapping[str, Any]]) -> Said:
        try:
            found: Mapping[str, Any] = tokenizer.parse_response(text, prefix=opening, tools=list(schemas))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return Said(text, calls=(Call(UNKNOWN, error=f"the answer could not be read: {error}"),))
        functions = [cast("Mapping[str, Any]", call.get("function", call)) for call in found.get("tool_calls") or ()]
        return Said(
            str(found.get("content") or ""),
            str(found.get("reasoning_content") or found.get("thinking") or ""),
            tuple(call_of(one.get("name"), one.get("arguments")) for one in functions),
        )

    return read


def _plain_messages(messages: Sequence[Message], schemas: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Tools as part of the system message, calls as the assistant's text, results as data."""
    plain = [_plain_message(message) for message in messages]
    if not schemas:
        return plain
    functions = [json.dumps(schema.get("function", schema), ensure_ascii=False) for schema in schemas]
    told = "\n".join([_PLAIN_SYSTEM, *functions])
    if not plain or plain[0]["role"] != "system":
        return [{"role": "system", "content": told}, *plain]
    return [{"role": "system", "content": _added(plain[0]["content"], f"\n\n{told}")}, *plain[1:]]


def _plain_message(message: Message) -> Message:
    if message["role"] == "tool":
        # As any data: a template that renders no calls may refuse a tool's result, and an empty message gets no frame.
        return {"role": "data", "content": message["content"] or "(no output)"}
    if calls := message.get("tool_calls"):
        functions = [{name: call["function"][name] for name in ("name", "arguments")} for call in calls]
        written = "\n".join(f"{CALL_BEGIN}{json.dumps(one, ensure_ascii=False)}{CALL_END}" for one in functions)
        said = message.get("content")
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        return kept | {"content": _added(said, f"\n{written}") if said else written}
    return message


def _added(content: str | list[dict[str, str]], text: str) -> str | list[dict[str, str]]:
    return content + text if isinstance(content, str) else [*content, {"type": "text", "text": text}]
