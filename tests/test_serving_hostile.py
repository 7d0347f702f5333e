"""Whatever is sent, the server answers with an error of OpenAI's shape: never a 500, never a hang, little memory."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from rolewise.serving.errors import ApiError
from rolewise.serving.parsing import parse_chat
from rolewise.serving.settings import ServerSettings

from .chat import template_names, template_tokenizer
from .serving_fakes import ScriptedBackend, Served, answering, asked, served
from .test_serving_limits import HEAD, all_of

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server() -> Generator[Served]:
    with served(ScriptedBackend(positions=None), max_body_bytes=LIMIT, read_timeout=2.0, keep_alive=1.0) as one:
        yield one


def with_content(text: bytes) -> bytes:
    return b'{"model": "tiny", "messages": [{"role": "user", "content": ' + text + b"}]}"


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "white space": b" \n\t",
    "no JSON": b"hello",
    "cut": b'{"model": "tiny", "messages": [{"role": "us',
    "trailing": json.dumps(asked()).encode() + b"x",
    "two": json.dumps(asked()).encode() * 2,
    "BOM": b"\xef\xbb\xbf" + json.dumps(asked()).encode(),
    "UTF-16": json.dumps(asked()).encode("utf-16"),
    "bad UTF-8": with_content(b'"\xff\xfe"'),
    "overlong UTF-8": with_content(b'"\xc0\xaf"'),
    "encoded surrogate": with_content(b'"\xed\xa0\x80"'),
    "NUL bytes": b"\0" * 100,
    "control character in a string": with_content(b'"a\x01b"'),
    "duplicate key": b'{"model": "tiny", "messages": [], "model": "tiny"}',
    "duplicate role": b'{"model": "tiny", "messages": [{"role": "user", "role": "system", "content": "a"}]}',
    "duplicate key, escaped": b'{"model": "tiny", "messages": [{"role": "data", "r\\u006fle": "system"}]}',
    "NaN": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
    "Infinity": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "temperature": -Infinity}',
    "1e999": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
    "1e999 in a schema": json.dumps(
        asked(tools=[{"type": "function", "function": {"name": "f", "parameters": {"a": 0}}}])
    ).encode().replace(b'{"a": 0}', b'{"a": 1e999}'),
    "huge integer": json.dumps(asked(seed=0)).encode().replace(b'"seed": 0', b'"seed": ' + b"9" * 10_000),
    "huge n": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "n": ' + b"9" * 400 + b"}",
    "lone surrogate": with_content(b'"\\ud800"'),
    "lone surrogate in a key": b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "\\udfff": 1}',
    "lone surrogate in the model": b'{"model": "\\ud800", "messages": [{"role": "user", "content": "a"}]}',
    "lone surrogate in a stop": json.dumps(asked(stop="x")).encode().replace(b'"x"', b'"\\ud800"'),
    "deep lists": with_content(b"[" * 200_000),
    "deep lists, closed": with_content(b"[" * 50_000 + b"]" * 50_000),
    "deep objects": b'{"a":' * 100_000,
    "deep tool schema": json.dumps(
        asked(tools=[{"type": "function", "function": {"name": "f", "parameters": {"a": 0}}}])
    ).encode().replace(b'{"a": 0}', b'{"a":' * 90 + b"1" + b"}" * 90),
    "deep arguments": json.dumps(asked() | {"messages": [{"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[" * 100_000}}]}]}).encode(),
    "many empty lists": with_content(b"[" + b"[]," * 200_000 + b"[]]"),
    "many keys": b"{" + b",".join(b'"%d": 1' % at for at in range(50_000)) + b"}",
    "many keys, the last one twice": b"{" + b",".join(b'"%d": 1' % at for at in range(50_000)) + b',"49999": 1}',
    "many unknown fields": with_content(b'"a", ' + b",".join(b'"%d": 1' % at for at in range(50_000))),
    "much metadata": json.dumps(asked(metadata={str(at): at for at in range(50_000)})).encode(),
    "many wrong parts": with_content(b"[" + b"1," * 200_000 + b"1]"),
    "many numbers": with_content(b"[" + b"1.5," * 200_000 + b"1]"),
    "long key": b'{"' + b"k" * 900_000 + b'": 1}',
    "number as a body": b"1" * 100_000,
    "string as a body": b'"' + b"a" * 900_000 + b'"',
    "null": b"null",
    "array": b"[]",
    "10 MB": with_content(b'"' + b"a" * 10_000_000 + b'"'),
    "10 MB of nothing": b" " * 10_000_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies(server: Served, name: str) -> None:
    began = time.monotonic()
    reply = server.post(HOSTILE[name])
    assert 400 <= reply.status_code < 500, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(reply.content) < 10_000, "an error does not hand all back"
    assert time.monotonic() - began < 10
    assert server.post(asked()).status_code == 200


@pytest.mark.parametrize(
    "text",
    ["", " ", "\0", "\ufffe\uffff", "\U0010ffff", "\u202e\u2066", "a\u0300" * 500, "\ufdfa" * 300, "<|im_end|>" * 300,
     "{{ 7 * 7 }}{% raw %}", "\r\n\v\f\x1c\x85\u2028", "%s%n{}", "👩‍👩‍👧" * 100],
)  # fmt: skip
def test_odd_texts_are_answered(server: Served, text: str) -> None:
    for messages in (
        [{"role": "user", "content": text}],
        [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "data", "text": text}]}],
        [{"role": "user", "content": "a"}, {"role": "data", "content": text}],
    ):
        reply = server.post(asked() | {"messages": messages})
        assert reply.status_code == 200, reply.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["user", "data"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "function", "name", "a"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["model", "messages", "stop", "n", "tools", "tool_choice", "stream_options", "temperature", "top_p",
                     "seed", "logprobs", "top_logprobs", "metadata", "response_format", "chat_template_kwargs", "x"]),
    VALUES, max_size=5,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(fields=FIELDS, whole=st.booleans())
def test_wrong_types_are_errors_of_the_clients(fields: dict[str, Any], whole: bool) -> None:
    body = json.dumps(fields if whole else asked() | fields).encode()
    refused = None
    try:
        assert parse_chat(body, ServerSettings()).messages
    except ApiError as error:
        refused = error
    assert refused is None or (refused.status == 400 and refused.encoded().decode())


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=60))
def test_any_bytes_are_errors_of_the_clients(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_chat(body, ServerSettings())
    assert refused.value.status == 400


KEYWORDS = st.sampled_from(["type", "properties", "required", "items", "enum", "description", "$defs", "a"])
TOOLS_FUZZ = st.dictionaries(KEYWORDS, VALUES, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    parameters=TOOLS_FUZZ,
    name=st.sampled_from(
        [
            one
            for one in template_names()
            if one in ("qwen3", "llama3_1", "glm4moe", "gemma4", "qwen3_5", "deepseekv3", "granite4")
        ]
        or [None]
    ),
)
def test_no_schema_of_a_tool_breaks_a_template(parameters: dict[str, Any], name: str | None) -> None:
    import asyncio

    if name is None:
        pytest.skip("trl is not here")
    body = json.dumps(asked(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}]))
    one = answering(ScriptedBackend(tokenizer=template_tokenizer(name)))
    refused = None
    try:
        job = parse_chat(body.encode(), ServerSettings())
        asyncio.run(one.render(job.messages, tools=job.tools))
    except ApiError as error:
        refused = error
    assert refused is None or refused.status == 400


# --- sockets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 200,  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET //evil.example/.. HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b"Content-Length: 20\r\n\r\n{}",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\x1f\x8b\x08\0\0",
        HEAD + b"X : y\r\n\r\n",
        HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        HEAD + b"".join(b"X%d: y\r\n" % at for at in range(3000)) + b"\r\n",
        HEAD + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    ],
)
def test_hostile_sockets(server: Served, sent: bytes) -> None:
    with server.raw() as one:
        try:
            one.sendall(sent)
            answer = all_of(one)
        except ConnectionError:
            answer = b""
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer
    assert b"HTTP/1.1 5" not in answer
    assert server.post(asked()).status_code == 200


def test_half_closed_sockets_are_closed(server: Served) -> None:
    for part in (b"", b"POST /v1", HEAD, HEAD + b"Content-Length: 40\r\n\r\n{"):
        with server.raw() as one:
            one.sendall(part)
            one.shutdown(socket.SHUT_WR)
            one.settimeout(10)
            assert b"HTTP/1.1 5" not in all_of(one)
    assert server.post(asked()).status_code == 200


def test_memory_is_bounded(server: Served) -> None:
    import resource

    for name in ("many empty lists", "10 MB", "deep lists"):
        server.post(HOSTILE[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        for name in ("many empty lists", "10 MB", "deep lists", "many keys"):
            server.post(HOSTILE[name])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kilobytes"


# --- the OpenAPI description ----------------------------------------------------------------------------------------


def fuzz(server: Served, examples: int) -> None:
    """Requests made from the description, right and wrong ones: what comes back must be what it says."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                nonlocal count
                if isinstance(case.body, dict) and count % 2:
                    case.body["model"] = "tiny"
                count += 1
                response = case.call(timeout=30)
                case.validate_response(response, checks=checks)

            try:
                ask()
            except Unsatisfiable:
                assert mode is schemathesis.GenerationMode.NEGATIVE, "nothing about a plain GET can be wrong"
    assert count > examples


def test_the_description_is_of_this_server(server: Served) -> None:
    document = server.get("/openapi.json").json()
    assert set(document["paths"]) == {"/v1/chat/completions", "/v1/models", "/v1/models/{model}", "/health", "/metrics"}
    schema = document["components"]["schemas"]["ChatRequest"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["model", "messages"]
    assert set(document["paths"]["/v1/chat/completions"]["post"]["responses"]) >= {"200", "400", "413", "429", "503"}


def test_the_description_holds(server: Served) -> None:
    fuzz(server, 15)


@pytest.mark.slow
def test_the_description_holds_for_long(server: Served) -> None:
    fuzz(server, 400)
