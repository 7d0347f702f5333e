"""What is wrong with a chat request, in words for whoever sent it: the field, what it is, what it may be.

pydantic finds the problems; its own words speak of inputs, tags and validators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from rolewise.serving.errors import ApiError
from rolewise.serving.protocol import UNKNOWN_FIELD, ChatRequest
from rolewise.unknown import did_you_mean

_INDEX = re.compile(r"\[\d+\]")
_SHOWN = 60
"""Characters that are shown of a wrong value."""

_IN_DATA = 'put what was retrieved into a message {"role": "data", "content": "..."}, or into a part ' \
           '{"type": "data", "text": "..."} of a user message'  # fmt: skip
_NO_ROLES = "roles come from the structure of messages alone, and ids or template text could forge them"
_BY_HAND = frozenset(
    ("prompt", "input_ids", "segment_ids", "prompt_token_ids", "prompt_embeds", "input_embeds", "chat_template",
     "add_generation_prompt", "continue_final_message", "add_special_tokens", "roles", "segment", "segments")
)  # fmt: skip
"""Fields of other servers with which a client would write what stands between messages."""
_ELSEWHERE = {
    **dict.fromkeys(("documents", "context", "contexts", "data"), _IN_DATA),
    "extra_body": "it is an argument of OpenAI's Python client; what it holds stands in the body itself",
    "best_of": "ask for n answers",
    "max_new_tokens": "it is max_completion_tokens here",
    "max_output_tokens": "it is max_completion_tokens here",
    "input": "the conversation is in messages",
    "instructions": "they go into a message of the role system",
}
"""What to do instead of sending a field that is not of this API."""

_NO_SCHEMA = "answers cannot be forced into a schema; ask for the form in words"
_REMEDIES = {
    "model": "name one of those that GET /v1/models lists",
    "messages": 'send one at least, such as {"role": "user", "content": "..."}',
    "messages.role": "what was retrieved has the role data, the result of a tool the role tool",
    "messages.content": "an assistant's alone may be left out, where it has tool_calls",
    "messages.content.type": "there is text only, and data parts stand in system, user and data messages",
    "messages.function_call": "use tool_calls",
    "messages.tool_calls.function.arguments": "send the JSON object as text",
    "tools.type": "only functions can be offered",
    "tools.function.name": "take up to 64 letters, digits, dots, dashes and underscores",
    "tools.function.strict": _NO_SCHEMA,
    "tool_choice": "a call cannot be forced",
    "parallel_tool_calls": "a model cannot be kept to one call",
    "response_format": _NO_SCHEMA,
    "response_format.type": _NO_SCHEMA,
    "modalities": "there is text only",
    "store": "nothing is stored",
    "stop": "send up to four short strings",
}
"""What to do about a field, by its path without indices."""
_TYPES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_TWO_FORMS = {"content": "a string or a list of parts", "stop": "a string or a list of strings"}
"""Fields that may be a string as well as the list of which pydantic speaks."""


def first_problem(error: ValidationError) -> ApiError:
    """The first problem, in one sentence."""
    first: Mapping[str, Any] = error.errors(include_url=False, include_context=True)[0]
    where = _path(first["loc"])
    kind, context = str(first["type"]), dict(first.get("ctx") or {})
    if kind == UNKNOWN_FIELD:
        return _unknown(where, context)
    if kind in ("union_tag_invalid", "union_tag_not_found"):  # pydantic names the message, or the part
        where = _joined(where, str(context["discriminator"]).strip("'"))
    what = where or "the request"
    if kind == "value_error":  # ours, and whole sentences
        said = str(first["msg"]).removeprefix("Value error, ")
        return ApiError(400, f"{where}: {said}" if where else said, param=where or None)
    say = _SAID.get(kind)
    said = f"{what}: {first['msg']}" if say is None else say(what, first.get("input"), context)
    if kind in _TYPES:
        last = where.rpartition(".")[2]
        said = f"{what} is {_shown(first.get('input'))}, and must be {_TWO_FORMS.get(last, _TYPES[kind])}"
    remedy = _REMEDIES.get(_INDEX.sub("", where), "")
    return ApiError(400, f"{said}{remedy and f'; {remedy}'}", param=where or None)


def _unknown(where: str, context: Mapping[str, Any]) -> ApiError:
    name, known = str(context["field"]), [str(one) for one in context["known"]]
    where = _joined(where, name)
    why = _NO_ROLES if name in _BY_HAND else _ELSEWHERE.get(name) or did_you_mean(name, known)
    return ApiError(400, f"unknown field {where}: leave it out{why and f'; {why}'}", param=where, code="unknown_field")


def _missing(what: str, given: Any, context: Mapping[str, Any]) -> str:
    return f"{what} is missing"


def _null(what: str, given: Any, context: Mapping[str, Any]) -> str:
    field = ChatRequest.model_fields.get(what)  # one of OpenAI's that is not here, whose description says why
    why = "" if field is None else (field.description or "").partition(". ")[0].removeprefix("Not supported")
    return f"{what} is not supported{why}; leave it out, or send null"


def _choice(what: str, given: Any, context: Mapping[str, Any]) -> str:
    words = str(context["expected"]).replace("True", "true").replace("False", "false")
    return f"{what} is {_shown(given)}, and must be {words}"


def _tag(what: str, given: Any, context: Mapping[str, Any]) -> str:
    return f"{what} is {_shown(context['tag'])}, and must be one of {context['expected_tags']}"


def _bound(word: str, key: str) -> Callable[[str, Any, Mapping[str, Any]], str]:
    return lambda what, given, context: f"{what} is {_shown(given)}, and must be {word} {context[key]}"


def _length(word: str, key: str, unit: str) -> Callable[[str, Any, Mapping[str, Any]], str]:
    def say(what: str, given: Any, context: Mapping[str, Any]) -> str:
        has = f"has {len(given)} {unit}s" if given else "is empty"
        return f"{what} {has}, and must have at {word} {context[key]}"

    return say


_SAID: dict[str, Callable[[str, Any, Mapping[str, Any]], str]] = {
    "missing": _missing,
    "none_required": _null,
    "literal_error": _choice,
    "union_tag_invalid": _tag,
    "union_tag_not_found": _missing,
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("below", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "too_short": _length("least", "min_length", "element"),
    "too_long": _length("most", "max_length", "element"),
    "string_too_short": _length("least", "min_length", "character"),
    "string_too_long": _length("most", "max_length", "character"),
    "string_pattern_mismatch": lambda what, given, context: f"{what} is {_shown(given)}, and must match "
                                                            f"{context['pattern']}",
}  # fmt: skip
"""How each kind of pydantic's problems is told; types are in `_TYPES`."""


def _shown(value: Any) -> str:
    """A value as JSON, shortened."""
    if isinstance(value, str):
        return f"{json.dumps(value[:_SHOWN], ensure_ascii=False)}{' ...' * (len(value) > _SHOWN)}"
    if isinstance(value, list | dict):
        return ("a list" if isinstance(value, list) else "an object") if value else json.dumps(value)
    return json.dumps(value)[:_SHOWN]


def _joined(where: str, name: str) -> str:
    return ".".join(filter(None, (where, name)))[:200]


_TAGS = frozenset(("system", "developer", "user", "data", "tool", "function", "assistant", "text", "parts", "none"))


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
