"""The API: what a client sends, what the engine is handed, what comes back; with the official client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator
from typing import Any

import httpx
import openai
import pytest

from rolewise.roles import Role
from rolewise.serving.answering import Sampling
from rolewise.serving.backend import OverloadedError, UnavailableError
from rolewise.serving.openapi import ChatCompletion

from .serving_fakes import TOOLS, WITH_TOOLS, ScriptedBackend, Served, answering, asked, echo, last, served, until


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend(echo)


@pytest.fixture(scope="module")
def server(backend: ScriptedBackend) -> Generator[Served]:
    with served(backend, max_completion_tokens=64, max_choices=4, max_prompt_tokens=600, max_messages=20) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Served) -> Any:
    return server.openai()


# --- requests and answers -------------------------------------------------------------------------------------------


def test_an_answer(client: Any, backend: ScriptedBackend) -> None:
    reply = client.chat.completions.create(**asked("count the red cat"))
    choice = reply.choices[0]
    assert choice.message.content.startswith("user\ncount the red cat")
    assert (choice.finish_reason, choice.index, choice.logprobs, reply.model) == ("stop", 0, None, "tiny")
    assert reply.usage.completion_tokens == len(echo(last(backend)))
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens == 3
    ChatCompletion.model_validate(json.loads(reply.model_dump_json(exclude_unset=True)))


def test_settings_reach_the_engine(client: Any, backend: ScriptedBackend) -> None:
    client.chat.completions.create(
        **asked() | {"temperature": 0.7}, top_p=0.9, seed=5, max_tokens=7, frequency_penalty=0.5,
        presence_penalty=-0.25,
        user="me", metadata={"a": "b"}, store=False, parallel_tool_calls=True, response_format={"type": "text"},
    )  # fmt: skip
    request = last(backend)
    assert (request.temperature, request.top_p, request.seed, request.max_new_tokens) == (0.7, 0.9, 5, 7)
    assert (request.frequency_penalty, request.presence_penalty, request.logprobs) == (0.5, -0.25, None)
    client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}])
    assert (last(backend).temperature, last(backend).max_new_tokens) == (1.0, 64)
    client.chat.completions.create(**asked() | {"temperature": 1e-9})
    assert last(backend).temperature == 0.0, "dividing by less would overflow"


@pytest.mark.parametrize("stream", [False, True])
def test_too_many_tokens_end_with_length(client: Any, stream: bool) -> None:
    reply = client.chat.completions.create(**asked("the cat the dog the tree"), max_completion_tokens=3, stream=stream)
    if stream:
        reply = list(reply)[-1]
    assert reply.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("content", "options"),
    [("naïve 日本語 👩‍👩‍👧", {}), ("the cat. the dog", {"stop": [" dog", "x"]}), ("a b c", {"stop": "b"}), ("", {}),
     ("none at all", {"stop": []}), ("many", {"n": 3, "logprobs": True, "top_logprobs": 2}),
     ("long " * 9, {"max_tokens": 5, "logprobs": True})],
)  # fmt: skip
def test_streamed_is_what_is_not_streamed(client: Any, content: str, options: dict[str, Any]) -> None:
    one = client.chat.completions.create(**asked(content), **options)
    chunks = list(
        client.chat.completions.create(**asked(content), **options, stream=True, stream_options={"include_usage": True})
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage == one.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    for choice in one.choices:
        own = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == choice.index]
        assert own[0].delta.role == "assistant"
        assert "".join(part.delta.content or "" for part in own) == choice.message.content
        assert [part.finish_reason for part in own if part.finish_reason] == [choice.finish_reason]
        assert own[-1].finish_reason
        if options.get("logprobs"):
            streamed = [token for part in own if part.logprobs for token in part.logprobs.content]
            assert streamed == choice.logprobs.content


def test_stop_strings_cut_across_tokens_and_end_the_engines_work(client: Any, backend: ScriptedBackend) -> None:
    before, closed = backend.wrote, backend.closed_early
    reply = client.chat.completions.create(**asked("the cat and the dog and the tree"), stop=["at a", "zz"])
    assert reply.choices[0].message.content == "user\nthe c"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == backend.wrote - before < len(echo(last(backend)))
    assert backend.closed_early == closed + 1
    assert last(backend).stop == (), "text is the front's business"


def test_logprobs_have_openais_shape(client: Any) -> None:
    reply = client.chat.completions.create(**asked("é"), logprobs=True, top_logprobs=2)
    tokens = reply.choices[0].logprobs.content
    assert bytes(one for token in tokens for one in token.bytes).decode() == reply.choices[0].message.content
    assert [token.logprob for token in tokens] == [-0.5] * len(tokens)
    assert [[one.logprob for one in token.top_logprobs] for token in tokens] == [[-0.5, -1.5]] * len(tokens)
    assert tokens[0].top_logprobs[0].token == tokens[0].token


def test_n_answers_have_seeds_of_their_own(client: Any, backend: ScriptedBackend) -> None:
    before = len(backend.requests)
    reply = client.chat.completions.create(**asked("x") | {"temperature": 1}, n=3, seed=2**63 - 2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    seeds = sorted(request.seed for request, _ in backend.requests[before:])
    assert seeds == [-(2**63), 2**63 - 2, 2**63 - 1]
    assert reply.usage.completion_tokens == 3 * len(echo(last(backend)))
    assert reply.usage.prompt_tokens == len(last(backend).input_ids)


# --- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_and_its_result(stream: bool) -> None:
    call = 'Let me see. <tool_call>{"name": "look-up", "arguments": {"word": "naïve"}}</tool_call>'
    backend = ScriptedBackend(lambda request: call)
    with served(backend) as server:
        client = server.openai()
        messages: list[Any] = [{"role": "user", "content": "what is a cat?"}]
        if stream:
            chunks = list(client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, stream=True))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            calls = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or ()]
            assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 3, "text before it is streamed"
            assert [one.index for one in calls] == [0]
            reason = chunks[-1].choices[0].finish_reason
            messages.append({"role": "assistant", "content": text, "tool_calls": [
                one.model_dump(exclude={"index"}) for one in calls]})  # fmt: skip
        else:
            reply = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, tool_choice="auto")
            message = reply.choices[0].message
            text, calls, reason = message.content, message.tool_calls, reply.choices[0].finish_reason
            messages.append(message.model_dump())  # with all its nulls, as people do
        assert (text, reason) == ("Let me see.", "tool_calls")
        assert calls[0].function.name == "look-up"
        assert json.loads(calls[0].function.arguments) == {"word": "naïve"}
        messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "an animal"})
        again = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, logprobs=True)
        assert again.choices[0].message.tool_calls[0].id != calls[0].id
        request = last(backend)
        data = [one for one, row in zip(request.input_ids, request.segment_ids, strict=True) if row == Role.DATA]
        assert "an animal" in backend.tokenizer.decode(data)
        none = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, tool_choice="none")
        assert none.choices[0].message.tool_calls is None
        assert none.choices[0].message.content == call
        assert "look-up" not in backend.tokenizer.decode(last(backend).input_ids[:40])


def test_a_stream_begins_with_the_first_token_even_where_all_is_held_back() -> None:
    call = '<tool_call>{"name": "look-up", "arguments": {"word": "the cat and the dog and the tree"}}</tool_call>'
    backend = ScriptedBackend(lambda request: call, pause=0.05)
    with served(backend) as server:
        url = f"{server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=asked(stream=True, tools=TOOLS), trust_env=False, timeout=30) as reply:
            assert reply.status_code == 200
            assert backend.running == 1
            assert "tool_calls" in "".join(reply.iter_text())


def test_thoughts_are_told_apart() -> None:
    with served(ScriptedBackend(lambda request: "<think>\nhm\n</think>\n\nA cat.")) as server:
        client = server.openai()
        message = client.chat.completions.create(**asked()).choices[0].message
        assert (message.content, message.reasoning_content) == ("A cat.", "hm")
        deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked(), stream=True)]
        assert "".join(one.content or "" for one in deltas) == "A cat."
        assert "".join(getattr(one, "reasoning_content", None) or "" for one in deltas) == "hm"


@pytest.mark.parametrize(
    ("arguments", "problem"), [("{", "not valid JSON"), ("[1]", "must be a JSON object"), ('{"a": 1, "a": 2}', "twice")]
)
def test_arguments_of_earlier_calls_must_be_json_objects(server: Served, arguments: str, problem: str) -> None:
    messages = [*WITH_TOOLS[:2], {"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]  # fmt: skip
    error = server.post(asked() | {"messages": messages})
    assert error.status_code == 400
    assert problem in error.json()["error"]["message"]
    assert error.json()["error"]["param"] == "messages[2].tool_calls[0].function.arguments"


def test_plain_tools_join_a_developers_message() -> None:
    backend = ScriptedBackend()
    with served(backend) as server:
        for role in ("system", "developer"):
            messages = [{"role": role, "content": "be brief"}, {"role": "user", "content": "a"}]
            assert server.post(asked(tools=TOOLS) | {"messages": messages}).status_code == 200
    first, second = (request for request, _ in backend.requests)
    assert (first.input_ids, first.segment_ids) == (second.input_ids, second.segment_ids)


def test_tools_in_plain_text_cannot_be_data() -> None:
    with served(ScriptedBackend(), tools_role="data") as server:
        error = server.post(asked(tools=TOOLS))
        assert error.status_code == 400
        assert "cannot be data" in error.json()["error"]["message"]


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "token ids"),
        ({"audio": {}}, "audio", "text only"),
        ({"modalities": ["audio"]}, "modalities", "text"),
        ({"tool_choice": "required"}, "tool_choice", "forced"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "forced"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls", "one call"),
        ({"functions": [{}]}, "functions", "use tools"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "enable_thinking"),
        ({"store": True}, "store", "stored"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "4"),
        ({"stop": ""}, "stop", "at least 1"),
        ({"stop": 1}, "stop", ""),
        ({"n": 5}, "n", "allows 4"),
        ({"n": 0}, "n", ""),
        ({"n": 1.5}, "n", ""),
        ({"n": True}, "n", ""),
        ({"temperature": 2.5}, "temperature", ""),
        ({"temperature": "1"}, "temperature", ""),
        ({"top_p": 0}, "top_p", ""),
        ({"seed": 2**63}, "seed", ""),
        ({"max_tokens": 65}, "max_tokens", "allows 64"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", ""),
        ({"max_tokens": 3, "max_completion_tokens": 4}, None, "differ"),
        ({"top_logprobs": 2}, None, "logprobs"),
        ({"stream_options": {"include_usage": True}}, None, "stream"),
        ({"stream": "yes"}, "stream", ""),
        ({"messages": []}, "messages", ""),
        ({"messages": {}}, "messages", ""),
        ({"messages": [{"role": "user", "content": "a"}] * 21}, "messages", "takes 20"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "messages[0].role", "'data'"),
        ({"messages": [{"role": "user", "content": "a", "segment": 0}]}, "messages[0].segment", "unknown"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type", "text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache": 1}]}]},
         "messages[0].content[0].cache", "unknown"),
        ({"messages": [{"role": "assistant", "content": [{"type": "data", "text": "a"}]}]},
         "messages[0].content[0].type", ""),
        ({"messages": [{"role": "assistant"}]}, "messages[0]", "neither"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", ""),
        ({"messages": [{"role": "user", "content": "a " * 700}]}, "messages", "takes 600"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", ""),
        ({"tools": [{"type": "function", "function": {"name": "a", "strict": True}}]}, "tools[0].function.strict", ""),
        ({"no_such_thing": 1}, "no_such_thing", "unknown"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_with_the_field(
    server: Served, fields: dict[str, Any], param: str | None, says: str
) -> None:
    reply = server.post(asked() | fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    if param is None or "." in param or "[" in param:
        assert error["param"] == param
    else:
        assert error["param"].partition(".")[0].partition("[")[0] == param
    assert says in error["message"]


def test_null_is_as_good_as_nothing(server: Served) -> None:
    from rolewise.serving.protocol import ChatRequest

    nulls = dict.fromkeys(set(ChatRequest.model_fields) - {"model", "messages"})
    reply = server.post({**nulls, "model": "tiny", "messages": [{"role": "user", "content": "a", "name": None}]})
    assert reply.status_code == 200, reply.text


def test_errors_are_the_clients_own_exceptions(server: Served, client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="there is tiny") as missing:
        client.chat.completions.create(**asked() | {"model": "gpt-4"})
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="logit_bias") as bad:
        client.chat.completions.create(**asked(), logit_bias={"1": 2})
    assert bad.value.param == "logit_bias"
    with pytest.raises(openai.NotFoundError, match="chat/completions"):
        client.completions.create(model="tiny", prompt="a")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="a")


def test_models(client: Any) -> None:
    assert [one.id for one in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (OverloadedError("no room", retry_after=3.2), 429, openai.RateLimitError),
        (UnavailableError("gone"), 503, openai.InternalServerError),
        (NotImplementedError("no penalties here"), 400, openai.BadRequestError),
        (RuntimeError("secret /path"), 500, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("options", [{}, {"stream": True}, {"n": 2}, {"n": 2, "stream": True}])
def test_errors_of_the_engine(error: Exception, status: int, kind: Any, options: dict[str, Any]) -> None:
    backend = ScriptedBackend(error=error)
    with served(backend) as server:
        with pytest.raises(kind) as told:
            server.openai().chat.completions.create(**asked(), **options)
        assert told.value.status_code == status
        assert "secret" not in str(told.value)
        if status == 429:
            assert told.value.response.headers["retry-after"] == "4"
        until(lambda: server.app.state.admission._inside == 0)
        backend.error, backend.fail_after = error, 2
        if "stream" in options:
            stream = server.openai().chat.completions.create(**asked(), **options)
            with pytest.raises(openai.APIError):
                for _ in stream:
                    pass
        until(lambda: (backend.running, server.app.state.admission._inside) == (0, 0))
        left = re.findall(r"^rolewise_answers_(?:waiting|running)\S* (\S+)$", server.get("/metrics").text, re.MULTILINE)
        assert left == ["0.0", "0.0"]


def test_several_models(backend: ScriptedBackend) -> None:
    with served(backend, ScriptedBackend(lambda request: "the other"), names=("a/b", "other")) as server:
        client = server.openai()
        assert [one.id for one in client.models.list()] == ["a/b", "other"]
        assert server.get("/v1/models/a/b").json()["id"] == "a/b"
        assert client.chat.completions.create(**asked() | {"model": "other"}).choices[0].message.content == "the other"


# --- state ----------------------------------------------------------------------------------------------------------


def test_metrics_count(backend: ScriptedBackend) -> None:
    with served(backend) as server:
        reply = server.post(asked()).json()
        server.post(asked(stream=True))
        server.post({})
        server.get("/x/%0a/1")
        page = server.get("/metrics").text
        read, written = reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]
        for line in (
            'rolewise_requests_total{endpoint="/v1/chat/completions",status="200"} 2.0',
            'rolewise_requests_total{endpoint="/v1/chat/completions",status="400"} 1.0',
            'rolewise_requests_total{endpoint="other",status="404"} 1.0',
            f'rolewise_prompt_tokens_total{{model="tiny"}} {2.0 * read}',
            f'rolewise_completion_tokens_total{{model="tiny"}} {2.0 * written}',
            'rolewise_cached_prompt_tokens_total{model="tiny"} 6.0',
            'rolewise_answers_running{model="tiny"} 0.0',
            'rolewise_answers_waiting{model="tiny"} 0.0',
            'rolewise_time_to_first_token_seconds_count{model="tiny"} 2.0',
            'rolewise_front_seconds_count{model="tiny"} 2.0',
        ):  # fmt: skip
            assert line in page, line


def test_health() -> None:
    well, ill = ScriptedBackend(), ScriptedBackend(error=UnavailableError("gone"))
    with served(well) as server:
        assert server.get("/health").json() == {"status": "ok", "models": {"tiny": True}}
    with served(well, ill) as server:
        reply = server.get("/health")
        assert (reply.status_code, reply.json()["models"]) == (503, {"tiny": True, "other": False})


def test_a_scale_reaches_the_engine() -> None:
    backend = ScriptedBackend()
    one = answering(backend)

    async def ask() -> str:
        prompt = await one.render([{"role": "user", "content": "a"}])
        with one.admitted():
            return "".join([piece.text async for piece in one.stream(prompt, Sampling(max_tokens=9), scale=0.0)])

    assert asyncio.run(ask()) == "The cat."
    assert backend.requests[-1][1] == 0.0
