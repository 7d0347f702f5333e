"""The HTTP around the API: ids and lines for each request, hints where a path is wrong, and no redirections."""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from rolewise.serving.backend import UnavailableError
from rolewise.serving.upstream import UpstreamBackend
from rolewise.serving.vllm_api import _logprobs

from .serving_fakes import ScriptedBackend, Served, asked, served, until
from .test_serving_limits import all_of, slow

ID = re.compile(r"req-[0-9a-f]{20}")


@pytest.fixture(scope="module")
def server() -> Generator[Served]:
    with served(ScriptedBackend(), playground=True, read_timeout=1.0) as one:
        yield one


# --- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("POST", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("POST", "//v1/chat/completions", "/v1/chat/completions"),
        ("GET", "//v1/models", "/v1/models"),
        ("GET", "/models", "/v1/models"),
        ("GET", "/v1/models/", "/v1/models"),
        ("GET", "/health/", "/health"),
        ("GET", "/v1/health", "/health"),
        ("GET", "/metrics/", "/metrics"),
        ("GET", "/v1", None),
        ("GET", "/v2/models", None),
        ("GET", "/playground/static/no.js", ""),
    ],
)
def test_a_wrong_path_is_told_the_right_one(server: Served, method: str, path: str, meant: str | None) -> None:
    # httpx would tidy the path up
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    body = json.dumps(asked()) if method == "POST" else None
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    reply = connection.getresponse()
    said = json.loads(reply.read())["error"]["message"]
    connection.close()
    assert reply.status == 404, "and no redirection, whose address the client's Host header would make"
    assert reply.getheader("location") is None
    if meant is None:
        assert "the API is at /v1" in said
    elif meant:
        assert re.search(rf"{meant} was meant", said)
        assert path in said
        assert ("base_url" in said) == (meant.startswith("/v1/") and path != "/v1/models/")


def test_a_wrong_method_is_told_the_right_one(server: Served) -> None:
    reply = server.get("/v1/chat/completions")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert reply.json()["error"]["message"] == "/v1/chat/completions does not take GET; send POST"


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/v1/models", "/openapi.json"])
def test_whoever_asks_for_the_head_alone_gets_it(server: Served, path: str) -> None:
    got, head = server.get(path), httpx.head(f"{server.url}{path}", trust_env=False)
    assert (got.status_code, head.status_code) == (200, 200)
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    assert httpx.head(f"{server.url}/v1/chat/completions", trust_env=False).status_code == 405


def test_keys_that_are_missing_and_wrong_are_told_apart() -> None:
    with served(ScriptedBackend(), api_keys=("right-key",)) as server:
        said: dict[str, str] = {}
        for header in ("", "right-key", "Basic right-key", "Bearer", "Bearer wrong-key"):
            reply = server.get("/v1/models", headers={"Authorization": header} if header else {})
            assert reply.status_code == 401
            said[header] = reply.json()["error"]["message"]
            assert "-key" not in said[header], "keys are not shown"
        assert "no API key was sent" in said[""]
        assert "none of this server's" in said["Bearer wrong-key"]
        assert all("is not 'Bearer KEY'" in said[one] for one in ("right-key", "Basic right-key", "Bearer"))
        assert server.get("/v1/models", headers={"Authorization": "bearer  right-key"}).status_code == 200


def test_metrics_have_no_times_of_making(server: Served) -> None:
    assert server.post(asked()).status_code == 200
    page = server.get("/metrics").text
    assert "rolewise_requests_total{" in page
    assert "rolewise_request_seconds_sum{" in page
    assert "_created" not in page


# --- ids and lines --------------------------------------------------------------------------------------------------


def test_every_response_has_an_id_of_ours(server: Served) -> None:
    seen: set[str] = set()
    mine = {"x-request-id": "mine" * 1000}
    replies = [server.post(asked(), headers=mine), server.post(asked(stream=True)), server.post({}), server.get("/"),
               server.get("/x"), server.get("/health", headers=mine), server.get("/v1/models"),
               server.get("/health", headers={"host": "elsewhere.example"})]  # fmt: skip
    for reply in replies:
        assert ID.fullmatch(reply.headers["x-request-id"]), reply.request
        seen.add(reply.headers["x-request-id"])
    with server.raw() as one:
        one.sendall(b"nonsense\r\n\r\n")
        seen.update(re.findall(r"x-request-id: (\S+)", all_of(one).decode()))
    assert len(seen) == len(replies) + 1
    answer = server.openai().chat.completions.create(**asked())
    assert ID.fullmatch(answer._request_id)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "rolewise.serving.access"]


def test_a_line_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rolewise.serving.access")
    with served(ScriptedBackend(), log_requests=True, api_keys=("a-secret",), playground=True) as server:
        key = {"Authorization": "Bearer a-secret"}
        for fields in ({}, {"n": 2}, {"stream": True}):
            caplog.clear()
            reply = server.post(asked("my private words", **fields), headers=key)
            until(lambda: lines(caplog))
            (line,) = lines(caplog)
            found = re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}Z POST /v1/chat/completions 200, \d+\.\d{3} s, "
                                 r"(\d+) \+ (\d+) tokens, (req-\w+)", line)  # fmt: skip
            assert found, line
            assert found[3] == reply.headers["x-request-id"]
            if "stream" not in fields:
                usage = reply.json()["usage"]
                assert (int(found[1]), int(found[2])) == (usage["prompt_tokens"], usage["completion_tokens"])
            else:
                assert int(found[2]) > 0
        caplog.clear()
        server.get("/v1/models?api_key=a-secret&x=private")
        server.get("/x%0arolewise: forged%1b[31m", headers=key)
        server.get("/" + "y" * 5000)
        until(lambda: len(lines(caplog)) == 3)
        said = "\n".join(lines(caplog))
        assert said.count("\n") == 2, "no line can be forged"
        assert "\x1b" not in said
        assert len(said) < 1000
        assert "/v1/models 401, " in said
        assert not re.search("secret|private", said)
        caplog.clear()
        body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "temperature": 0,
                "roles": True, "seed": 1}  # fmt: skip
        assert server.post(body, path="/playground/answer", headers=key).status_code == 200
        until(lambda: lines(caplog))
        assert re.search(r"/playground/answer 200, .* \d\d \+ [1-3] tokens", lines(caplog)[0])


def test_a_client_that_has_gone_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rolewise.serving.access")
    backend = slow()
    with served(backend, log_requests=True) as server:
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/chat/completions", json=asked(), timeout=1, trust_env=False)
        until(lambda: lines(caplog))
        assert "client gone" in lines(caplog)[0]


def test_no_line_unless_it_is_wanted(caplog: pytest.LogCaptureFixture, server: Served) -> None:
    caplog.set_level(logging.INFO, "rolewise.serving.access")
    server.post(asked())
    assert not lines(caplog)


@pytest.mark.parametrize("error", [UnavailableError("http://gpu1:8001 broke"), RuntimeError("secret /path of gpu1")])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fail_after", [None, 2])
def test_a_failure_is_found_in_the_log_by_its_id(
    error: Exception, stream: bool, fail_after: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with served(ScriptedBackend(error=error, fail_after=fail_after)) as server:
        reply = server.post(asked(stream=stream))
    said = reply.text
    assert reply.status_code in ({200} if stream and fail_after else {500, 503})
    assert "gpu1" not in said, "no machine of ours is named to clients"
    (name,) = set(ID.findall(said))
    assert name == reply.headers["x-request-id"]
    logged = [one for one in caplog.records if name in one.getMessage()]
    assert len(logged) == 1
    assert "gpu1" in logged[0].getMessage() + str(logged[0].exc_info)


@pytest.mark.parametrize("chance", [float("nan"), float("inf")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_log_probability_that_is_none_fails_clearly(chance: float, stream: bool) -> None:
    class Broken(ScriptedBackend):
        async def stream(self, request: Any, *, scale: float | None = None) -> Any:
            async for delta in super().stream(request, scale=scale):
                yield delta.__class__(**{**vars(delta), "logprobs": [(one, chance, []) for one in delta.token_ids]})

    with served(Broken()) as server:
        reply = server.post(asked(logprobs=True, stream=stream))
        assert "internal_error" in reply.text
        for part in reply.text.split("\n\n"):
            text = part.removeprefix("data: ")
            assert not text or text == "[DONE]" or json.loads(text, parse_constant=pytest.fail)


def test_an_upstreams_log_probability_that_is_none_is_no_answer() -> None:
    def given(taken: str, other: str) -> Any:
        text = '{"tokens": ["token_id:5"], "token_logprobs": [%s], "top_logprobs": [{"token_id:6": %s}]}'
        return json.loads(text % (taken, other))

    assert _logprobs(given("-0.5", "-Infinity"), 1) == [(5, -0.5, [(6, float("-inf"))])]
    for taken, other in (("NaN", "-1"), ("Infinity", "-1"), ("-1", "NaN"), ("-1", "Infinity")):
        with pytest.raises(ValueError, match="is no log-probability"):
            _logprobs(given(taken, other), 1)


def test_an_upstream_that_is_down_is_named_once() -> None:
    class Down:
        def __init__(self, url: str) -> None:
            self.url = url

    from rolewise.serving.upstream import _Upstream

    backend = UpstreamBackend.__new__(UpstreamBackend)
    backend._upstreams = [_Upstream(Down(f"http://gpu{at}:8001")) for at in (1, 2)]  # type: ignore[arg-type]
    backend._upstreams[0].problem = "http://gpu1:8001 does not answer (ConnectError)"
    assert backend._why_none() == (
        "no engine can be used now: http://gpu1:8001 does not answer (ConnectError); "
        "http://gpu2:8001 was not looked at yet"
    )
