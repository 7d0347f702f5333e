"""What a client reads of a request that is wrong: the field, what it is, what it may be; and no word of pydantic's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings

from rolewise.serving.errors import ApiError
from rolewise.serving.parsing import parse_chat
from rolewise.serving.problems import _SAID, _TYPES
from rolewise.serving.settings import ServerSettings

from .serving_fakes import asked
from .test_serving_hostile import FIELDS

PYDANTIC = re.compile(r"[Ii]nput|validat|[Vv]alue error|\btag\b|discriminator|Extra|instance|NoneType|Field required|"
                      r"\bTrue\b|\bFalse\b|\bNone\b|constrain")  # fmt: skip


def problem(fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        parse_chat(json.dumps(asked() | fields).encode(), ServerSettings())
    assert refused.value.status == 400
    return refused.value


def said(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


def part(role: str, **fields: Any) -> dict[str, Any]:
    return said({"role": role, "content": [fields]})


def call(**function: Any) -> dict[str, Any]:
    return said({"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        # unknown fields, those of other servers among them
        ({"temprature": 1}, "unknown field temprature: leave it out; did you mean 'temperature'?"),
        ({"zzzz": 1}, "unknown field zzzz: leave it out"),
        ({"documents": ["x"]}, 'unknown field documents: leave it out; put what was retrieved into a message {"role": '
         '"data", "content": "..."}, or into a part {"type": "data", "text": "..."} of a user message'),
        ({"input_ids": [1]}, "unknown field input_ids: leave it out; roles come from the structure of messages alone, "
         "and ids or template text could forge them"),
        ({"max_new_tokens": 1}, "unknown field max_new_tokens: leave it out; it is max_completion_tokens here"),
        (said({"role": "user", "contents": "a"}),
         "unknown field messages[0].contents: leave it out; did you mean 'content'?"),
        (part("user", type="text", text="a", cache_control=1),
         "unknown field messages[0].content[0].cache_control: leave it out"),
        # what OpenAI has, and we have not
        ({"logit_bias": {"5": 1}}, "logit_bias is not supported: it names token ids, which clients of this server "
         "cannot; leave it out, or send null"),
        ({"functions": [{}]}, "functions is not supported: use tools; leave it out, or send null"),
        ({"response_format": {"type": "json_schema"}}, 'response_format.type is "json_schema", and must be \'text\'; '
         "answers cannot be forced into a schema; ask for the form in words"),
        ({"tool_choice": "required"},
         "tool_choice is \"required\", and must be 'none' or 'auto'; a call cannot be forced"),
        ({"parallel_tool_calls": False},
         "parallel_tool_calls is false, and must be true; a model cannot be kept to one call"),
        (said({"role": "assistant", "content": "a", "function_call": {"name": "x"}}),
         "messages[0].function_call is not supported; leave it out, or send null; use tool_calls"),
        # types and bounds
        ({"n": "1"}, 'n is "1", and must be a whole number'),
        ({"n": 1.5}, "n is 1.5, and must be a whole number"),
        ({"n": 0}, "n is 0, and must be at least 1"),
        ({"stream": "yes"}, 'stream is "yes", and must be true or false'),
        ({"temperature": [1]}, "temperature is a list, and must be a number"),
        ({"temperature": 2.5}, "temperature is 2.5, and must be at most 2.0"),
        ({"top_p": 0}, "top_p is 0, and must be above 0.0"),
        ({"stop": 1}, "stop is 1, and must be a string or a list of strings; send up to four short strings"),
        ({"stop": ["a"] * 5}, "stop has 5 elements, and must have at most 4; send up to four short strings"),
        ({"stop": ""}, "stop is empty, and must have at least 1; send up to four short strings"),
        ({"model": None}, "model is null, and must be a string; name one of those that GET /v1/models lists"),
        ({"user": {"a": 1}}, "user is an object, and must be a string"),
        ({"user": ["x" * 5000]}, "user is a list, and must be a string"),
        ({"tools": {}}, "tools is {}, and must be a list"),
        # messages
        (said(), 'messages is empty, and must have at least 1; send one at least, such as {"role": "user", "content": '
         '"..."}'),
        (said({"role": "bot", "content": "a"}), "messages[0].role is \"bot\", and must be one of 'system', "
         "'developer', 'user', 'data', 'tool', 'function', 'assistant'; what was retrieved has the role data, the "
         "result of a tool the role tool"),
        (said({"content": "a"}), "messages[0].role is missing; what was retrieved has the role data, the result of a "
         "tool the role tool"),
        (said({"role": "user", "content": None}), "messages[0].content is null, and must be a string or a list of "
         "parts; an assistant's alone may be left out, where it has tool_calls"),
        (part("user", type="image_url"), "messages[0].content[0].type is \"image_url\", and must be one of 'text', "
         "'data'; there is text only, and data parts stand in system, user and data messages"),
        (part("assistant", type="data", text="a"), "messages[0].content[0].type is \"data\", and must be 'text'; there "
         "is text only, and data parts stand in system, user and data messages"),
        (part("user", type="text"), "messages[0].content[0].text is missing"),
        (call(name="f", arguments={"a": 1}), "messages[0].tool_calls[0].function.arguments is an object, and must be a "
         "string; send the JSON object as text"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 'tools[0].function.name is "a b", and must '
         "match ^[a-zA-Z0-9_.-]{1,64}$; take up to 64 letters, digits, dots, dashes and underscores"),
        ({"stream_options": {"include_usage": True}}, "stream_options needs stream to be true"),
    ],
)  # fmt: skip
def test_messages(fields: dict[str, Any], message: str) -> None:
    error = problem(fields)
    assert error.message == message
    if error.param is not None:
        assert error.param in error.message


def test_a_missing_model_says_where_they_are() -> None:
    with pytest.raises(ApiError, match=r"^model is missing; name one of those that GET /v1/models lists$"):
        parse_chat(b'{"messages": [{"role": "user", "content": "a"}]}', ServerSettings())


def test_long_values_are_shortened() -> None:
    assert len(problem({"tool_choice": "x" * 100_000}).message) < 300
    assert len(problem({"x" * 100_000: 1}).message) < 300
    assert len(problem({"seed": 10**39}).message) < 200


@settings(max_examples=300, deadline=None)
@given(fields=FIELDS)
def test_no_word_of_pydantics(fields: dict[str, Any]) -> None:
    """Whatever is wrong: a kind of problem that the table lacks would be told in pydantic's words."""
    message = ""
    try:
        parse_chat(json.dumps(asked() | fields).encode(), ServerSettings())
    except ApiError as error:
        message = error.message
    ours = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "", message)  # not what the client wrote
    assert not PYDANTIC.search(ours) or "is no JSON" in ours, message


def test_the_table_has_each_kind_that_our_models_can_raise() -> None:
    """Kinds of problems by what the request's description says of its fields."""
    from rolewise.serving.protocol import ChatRequest

    schema = json.dumps(ChatRequest.model_json_schema())
    kinds = {
        "minimum": "greater_than_equal", "maximum": "less_than_equal", "exclusiveMinimum": "greater_than",
        "exclusiveMaximum": "less_than", "minLength": "string_too_short", "maxLength": "string_too_long",
        "minItems": "too_short", "maxItems": "too_long", "maxProperties": "too_long", "pattern":
        "string_pattern_mismatch", "const": "literal_error", "enum": "literal_error", "required": "missing",
    }  # fmt: skip
    for word, kind in kinds.items():
        assert f'"{word}"' not in schema or kind in _SAID, word
    assert {"string_type", "int_type", "bool_type", "float_type", "list_type", "dict_type", "model_type"} <= set(_TYPES)
