"""The tool calls in what a model wrote, in the forms that chat templates teach.

JSON is read with a JSON decoder, never cut at a tag: an argument that quotes `</tool_call>` (an e-mail that the model
passes on, say) neither ends its call nor begins another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rolewise.messages import checked_text, plain_json

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"

UNKNOWN = "unknown"
"""The function of a call that names none, as inspect_ai has it."""


@dataclass(frozen=True)
class Call:
    """A tool call as written."""

    function: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    """Why it could not be read; inspect_ai shows that to the model in place of a result."""


Reader = Callable[[str, Sequence[Mapping[str, Any]]], tuple[str, list[Call]]]
"""From an answer and the tools' schemas: the text without its calls, and the calls."""


def read_tagged(text: str, schemas: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]]:
    """Calls between `<tool_call>` and `</tool_call>`: JSON (Hermes, Qwen), or tags again (Qwen-Coder, Nemotron, GLM).

    Between tags arguments are bare text: they take the type that the tool's schema names, and one that quotes the
    closing tag ends there.
    """
    calls: list[Call] = []
    rest: list[str] = []
    at = 0
    while (start := text.find(CALL_BEGIN, at)) >= 0:
        rest.append(text[at:start])
        call, at = _tagged(text, start + len(CALL_BEGIN), schemas)
        calls.append(call)
    if not calls:
        return text, []
    return "".join([*rest, text[at:]]).strip(), calls


def read_json(text: str, schemas: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]]:
    """An answer that is nothing but calls in JSON, one after the other (Llama 3.1).

    Any other answer is text, JSON that is no call included.
    """
    body = text.strip().removeprefix("<|python_tag|>")
    calls: list[Call] = []
    at = 0
    while (at := _skip(body, at, " \n\t\r;")) < len(body):
        try:
            value, at = _DECODER.raw_decode(body, at)
        except (ValueError, RecursionError):
            return text, []
        if not isinstance(value, dict) or not {"name"} < value.keys() <= {"type", "id", "name", *_ARGUMENTS}:
            return text, []
        calls.append(_from_json(value))
    return ("", calls) if calls else (text, [])


def read_mistral(text: str, schemas: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]]:
    """Calls after `[TOOL_CALLS]`: a list in JSON, or for each its name, `[ARGS]` and its arguments (Mistral)."""
    before, found, after = text.partition(_MISTRAL)
    if not found:
        return text, []
    calls: list[Call] = []
    rest = [before]
    while found:
        some, after = _mistral_calls(after)
        calls += some
        between, found, after = after.partition(_MISTRAL)
        rest.append(between)
    return "".join(rest).strip(), calls


READERS: dict[str, Reader] = {"tagged": read_tagged, "json": read_json, "mistral": read_mistral}
"""The forms that are read, by name."""


def call_of(name: Any, arguments: Any) -> Call:
    """A call, checked so that it can be written into a later prompt."""
    if not isinstance(name, str) or not name.strip():
        return Call(UNKNOWN, error=f"not a tool call: its name is {name!r}")
    try:
        name = checked_text(name, "its name")
    except ValueError as error:
        return Call(UNKNOWN, error=f"not a tool call: {error}".encode("ascii", "backslashreplace").decode())
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):  # some models quote them once more
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return Call(name, error=f"the arguments of {name} are no JSON object: {arguments[:200]}")
    if not isinstance(arguments, dict):
        return Call(name, error=f"the arguments of {name} are no JSON object: {str(arguments)[:200]}")
    try:
        json.dumps(arguments, allow_nan=False)
        return Call(name, plain_json(arguments, "arguments"))
    except (ValueError, TypeError, RecursionError) as error:
        return Call(name, error=f"the arguments of {name} cannot be used: {error}")


_DECODER = json.JSONDecoder()
_ARGUMENTS = ("arguments", "parameters")
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_NAME = re.compile(r"\s*([^\s<>{}\[\]]+)\s*(?=<arg_key>|$)")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_CALL = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)")


def _skip(text: str, at: int, characters: str = " \n\t\r") -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _from_json(value: Any) -> Call:
    if not isinstance(value, dict):
        return Call(UNKNOWN, error=f"not a tool call in JSON: {str(value)[:200]}")
    fields = cast("dict[str, Any]", value)
    arguments = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    return call_of(fields.get("name"), arguments)


def _tagged(text: str, at: int, schemas: Sequence[Mapping[str, Any]]) -> tuple[Call, int]:
    """The call whose body begins at `at`, and where the text goes on."""
    begin = _skip(text, at)
    if text.startswith("{", begin):
        try:
            value, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            body, end = _until_end(text, begin)
            return Call(UNKNOWN, error=f"not a tool call in JSON: {error}: {body[:200]}"), end
        after = _skip(text, end)
        if text.startswith(CALL_END, after):
            return _from_json(value), after + len(CALL_END)
        if after == len(text) or text.startswith(CALL_BEGIN, after):  # the closing tag was left out
            return _from_json(value), after
        body, end = _until_end(text, after)
        return Call(UNKNOWN, error=f"not a tool call in JSON: {body[:200]!r} follows the JSON object"), end
    body, end = _until_end(text, begin)
    return _from_tags(body, schemas), end


def _until_end(text: str, at: int) -> tuple[str, int]:
    end = text.find(CALL_END, at)
    return (text[at:], len(text)) if end < 0 else (text[at:end], end + len(CALL_END))


def _from_tags(body: str, schemas: Sequence[Mapping[str, Any]]) -> Call:
    if function := _FUNCTION.match(body):
        name, pairs = function[1].strip(), _PARAMETER.findall(function[2])
    else:
        named = _NAME.match(body)
        name, pairs = named[1] if named else "", _PAIR.findall(body)
        if not pairs and _properties(name, schemas) is None:  # a lone word, and no tool's name
            return Call(UNKNOWN, error=f"not a tool call: {body.strip()[:200]}")
    types = _properties(name, schemas) or {}
    return call_of(name, {key.strip(): _typed(value, types.get(key.strip())) for key, value in pairs})


def _properties(name: str, schemas: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The schemas of a tool's arguments; None when there is no such tool."""
    functions = [schema.get("function", schema) for schema in schemas]
    found = next((one for one in functions if isinstance(one, Mapping) and one.get("name") == name), None)
    return None if found is None else _mapping(_mapping(found.get("parameters")).get("properties"))


def _mapping(value: Any) -> Mapping[str, Any]:
    """A schema's part, where it is of the form that it must be: whoever offers a tool may write anything there."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _typed(text: str, schema: Any) -> Any:
    """A bare value as the type that its schema names; text where it names none, or may be text."""
    if not isinstance(schema, Mapping) or "string" in _types(cast("Mapping[str, Any]", schema)):
        return text
    try:
        return json.loads(_PYTHON.get(text.strip(), text))
    except (ValueError, RecursionError):
        return text


_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _types(schema: Mapping[str, Any]) -> set[str]:
    own, choices = schema.get("type"), schema.get("anyOf")
    found = {one for one in ([own] if isinstance(own, str) else _list(own)) if isinstance(one, str)}
    for choice in _list(choices):
        found |= _types(_mapping(choice))
    return found or {"string"}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _mistral_calls(text: str) -> tuple[list[Call], str]:
    """The calls with which the text begins, and what follows them."""
    named = _MISTRAL_CALL.match(text)
    start = named.end() if named else _skip(text, 0)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return [Call(UNKNOWN, error=f"not a tool call in JSON: {error}: {text.strip()[:200]}")], ""
    if named:
        return [call_of(named[1], value)], text[end:]
    return [_from_json(one) for one in (value if isinstance(value, list) else [value])], text[end:]
