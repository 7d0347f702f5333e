"""Limits, keys, hosts, times, clients that go away, and the end of a server: over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from typing import Any

import httpx
import openai
import pytest

from rolewise.serving.guard import _known_host
from rolewise.serving.server import bound_socket
from rolewise.serving.settings import ServerSettings, is_loopback

from .serving_fakes import ScriptedBackend, Served, asked, served, until

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def all_of(one: socket.socket) -> bytes:
    """What the server sends until it hangs up."""
    found = b""
    while some := one.recv(65536):
        found += some
    return found


def whole_request(body: Any, head: bytes = HEAD) -> bytes:
    text = json.dumps(body).encode()
    return head + b"Content-Length: %d\r\n\r\n" % len(text) + text


def slow(**options: Any) -> ScriptedBackend:
    return ScriptedBackend(lambda request: "the cat " * 200, pause=0.02, **options)


# --- size -----------------------------------------------------------------------------------------------------------


def test_bodies_that_are_too_large() -> None:
    with served(ScriptedBackend(), max_body_bytes=2000) as server:
        assert server.post(asked("a" * 1500)).status_code == 200
        reply = server.post(asked("a" * 2000))
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")

        def endless() -> Any:
            for _ in range(1000):
                yield b" " * 100

        chunked = httpx.post(f"{server.url}/v1/chat/completions", content=endless(), trust_env=False,
                             headers={"content-type": "application/json"})  # fmt: skip
        assert chunked.status_code == 413, "counted while it comes, where no length is given"
        with server.raw() as one:  # a length that is only claimed is refused before anything is read
            one.sendall(HEAD + b"Content-Length: 99999999999\r\n\r\n")
            assert b" 413 " in one.recv(65536)
        assert server.post(asked()).status_code == 200


def test_the_memory_of_all_bodies_is_bounded() -> None:
    with served(ScriptedBackend(), max_body_bytes=5000) as server:
        kept = [server.raw() for _ in range(20)]
        for one in kept:
            one.sendall(HEAD + b"Content-Length: 4999\r\n\r\n" + b" " * 4990)
        until(lambda: b" 429 " in kept[-1].recv(65536))
        for one in kept:
            one.close()
        until(lambda: not server.server.server_state.connections)
        assert server.post(asked("a" * 4000)).status_code == 200


def test_large_bodies_are_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from rolewise.serving import chat

    threads: list[str] = []
    parse = chat.parse_chat
    monkeypatch.setattr(chat, "parse_chat", lambda *a: (threads.append(threading.current_thread().name), parse(*a))[1])
    with served(ScriptedBackend(positions=None)) as server:
        for size in (10, 100_000):
            assert server.post(asked("a" * size)).status_code == 200
    assert not threads[0].startswith("rolewise-render")
    assert threads[1].startswith("rolewise-render")


def test_depth_messages_and_headers() -> None:
    with served(ScriptedBackend(), max_depth=10, max_messages=3) as server:
        deep: Any = "x"
        for _ in range(10):
            deep = [deep]
        assert "10 levels" in server.post(asked(tools=deep)).json()["error"]["message"]
        assert server.post(asked(tools=deep[0])).json()["error"]["param"].startswith("tools")
        reply = server.post(asked() | {"messages": [{"role": "user", "content": "a"}] * 4})
        assert reply.json()["error"]["param"] == "messages"
        with server.raw() as one:
            one.sendall(HEAD + b"X: " + b"a" * 40_000)
            assert b" 400 " in all_of(one)


def test_a_prompt_must_leave_room_for_an_answer() -> None:
    backend = ScriptedBackend(positions=None)
    with served(backend) as server:
        backend.positions = tokens = server.post(asked()).json()["usage"]["prompt_tokens"]
        reply = server.post(asked())
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
        backend.positions = tokens + 1
        assert server.post(asked()).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [{"max_body_bytes": 0}, {"max_requests": -1}, {"read_timeout": 0.0}, {"request_timeout": float("nan")},
     {"max_depth": 101}, {"api_keys": ("",)}, {"api_keys": ("schlüssel",)}, {"api_keys": ("a b",)}],
)  # fmt: skip
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"API key 1|max_|timeout"):
        ServerSettings(**wrong)


# --- who may come in ------------------------------------------------------------------------------------------------


def test_api_keys(caplog: pytest.LogCaptureFixture) -> None:
    with served(ScriptedBackend(), api_keys=("first-key", "second-key"), playground=True) as server:
        assert server.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing", "/playground/info"):
            assert server.get(path).status_code == 401
        assert server.get("/").status_code == 200, "the page asks for the key"
        assert server.post({}, path="/playground/answer").status_code == 401
        wrong = ("Bearer first", "first-key", "Basic first-key", "Bearer", "Bearer first-keysecond-key", "Bearer é")
        for header in wrong:
            reply = server.post(asked(), headers={"Authorization": header.encode()})
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
        for key in ("first-key", "second-key"):
            assert server.openai(api_key=key).chat.completions.create(**asked()).choices
        with pytest.raises(openai.AuthenticationError):
            server.openai(api_key="third-key").models.list()
    assert "first-key" not in repr(ServerSettings(api_keys=("first-key",)))
    assert "-key" not in caplog.text


@pytest.mark.parametrize(
    ("host", "bound", "allowed", "known"),
    [
        ("localhost", "127.0.0.1", (), True), ("localhost:8000", "127.0.0.1", (), True),
        ("127.0.0.1:8000", "127.0.0.1", (), True), ("[::1]:8000", "::1", (), True),
        ("a.localhost", "127.0.0.1", (), True),
        ("evil.example", "127.0.0.1", (), False), ("evil.example:8000", "localhost", (), False),
        ("localhost.evil.example", "127.0.0.1", (), False), ("127.0.0.1.evil.example", "127.0.0.1", (), False),
        ("", "127.0.0.1", (), False), ("10.0.0.1", "127.0.0.1", (), False),
        ("api.example", "127.0.0.1", ("api.example",), True), ("evil.example", "127.0.0.1", ("api.example",), False),
        ("evil.example", "0.0.0.0", (), True), ("evil.example", "0.0.0.0", ("api.example",), False),
        ("API.example:1", "0.0.0.0", ("api.example",), True),
    ],
)  # fmt: skip
def test_hosts(host: str, bound: str, allowed: tuple[str, ...], known: bool) -> None:
    assert _known_host(host.encode(), ServerSettings(host=bound, allowed_hosts=allowed)) is known


def test_loopback_names() -> None:
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "a.localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", "", "1"):
        assert not is_loopback(host)


def test_a_web_page_cannot_use_the_local_server() -> None:
    with served(ScriptedBackend()) as server:
        backend = server.app.state.answering["tiny"].backend
        body = json.dumps(asked())
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            reply = server.post(body.encode(), headers={"content-type": kind})
            assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")
        rebound = server.post(asked(), headers={"host": "evil.example"})
        assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "unknown_host")
        preflight = httpx.options(
            f"{server.url}/v1/chat/completions", trust_env=False,
            headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
        )  # fmt: skip
        assert preflight.status_code == 405
        assert not [name for name in preflight.headers if name.startswith("access-control")]
        assert not backend.requests
        good = server.post(body.encode(), headers={"content-type": "application/json; charset=utf-8"})
        assert good.status_code == 200
        assert not [name for name in good.headers if name.startswith("access-control")]


def test_too_many_at_once() -> None:
    backend = slow()
    with served(backend, max_requests=2) as server:
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=asked(stream=True), trust_env=False):
            with pytest.raises(openai.RateLimitError) as many:
                server.openai().chat.completions.create(**asked(), n=2)
            assert int(many.value.response.headers["retry-after"]) >= 1
            with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=asked(stream=True), trust_env=False):
                assert server.post(asked()).status_code == 429
                assert server.get("/health").status_code == 200
        until(lambda: backend.running == 0)
        assert backend.most_running == 2
        until(lambda: server.app.state.admission._inside == 0)


def test_connections_are_limited() -> None:
    with served(ScriptedBackend(), max_connections=3) as server:
        kept = [server.raw() for _ in range(3)]
        until(lambda: len(server.server.server_state.connections) == 3)
        with server.raw() as one:
            try:
                one.sendall(whole_request(asked()))
                answer = one.recv(10)
            except ConnectionError:
                answer = b""
        assert answer == b"", "hung up"
        for other in kept:
            other.close()
        until(lambda: not server.server.server_state.connections)
        assert server.post(asked()).status_code == 200


# --- time -----------------------------------------------------------------------------------------------------------


def trickle(one: socket.socket, data: bytes, pause: float = 0.05) -> bytes:
    """Send byte by byte until the server says something."""
    one.settimeout(pause)
    for at in range(len(data)):
        try:
            one.sendall(data[at : at + 1])
            if found := one.recv(65536):
                return found
            return b""
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
    raise AssertionError("the server went on waiting")


def test_slow_headers_and_bodies_are_cut_off() -> None:
    with served(ScriptedBackend(), read_timeout=0.4) as server:
        for start, rest in (
            (b"", HEAD + b"X-Slow: " + b"a" * 400),
            (HEAD + b"Content-Length: 900\r\n\r\n", b" " * 400),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 99),
        ):
            with server.raw() as one:
                began = time.monotonic()
                one.sendall(start)
                assert b" 408 " in trickle(one, rest)
                assert time.monotonic() - began < 8
        with server.raw() as one:  # nothing at all
            assert b" 408 " in all_of(one)
        with server.raw() as one:  # and after a first request, on the same connection
            one.sendall(whole_request(asked()))
            until(lambda: b"finish_reason" in one.recv(65536))
            assert b" 408 " in trickle(one, HEAD + b"X-Slow: " + b"a" * 400)
        assert server.post(asked()).status_code == 200


def test_idle_connections_are_closed() -> None:
    with served(ScriptedBackend(), keep_alive=1.0) as server, server.raw() as one:
        one.sendall(whole_request(asked()))
        assert b"finish_reason" in all_of(one)


def test_requests_that_take_too_long() -> None:
    backend = slow()
    with served(backend, request_timeout=0.5) as server:
        reply = server.post(asked())
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")
        until(lambda: backend.running == 0)
        stream = server.openai().chat.completions.create(**asked(stream=True))
        with pytest.raises(openai.APIError, match="longer than this server allows"):
            list(stream)
        until(lambda: backend.running == 0)
        assert 'status="504"} 1.0' in server.get("/metrics").text


def test_a_client_that_does_not_read_is_cut_off() -> None:
    backend = ScriptedBackend(lambda request: "the cat " * 20_000, step=500, positions=None)
    with served(backend, read_timeout=0.3, max_completion_tokens=10**6) as server, server.raw() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(whole_request(asked(stream=True, logprobs=True, top_logprobs=20)))
        until(lambda: backend.running == 1)
        until(lambda: backend.closed_early == 1 and backend.running == 0)


# --- clients that go away -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"stream": True}, {}, {"n": 3}, {"n": 3, "stream": True}])
@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_the_engine_stops_when_the_client_has_gone(fields: dict[str, Any], how: str) -> None:
    backend = slow()
    with served(backend) as server:
        one = server.raw()
        one.sendall(whole_request(asked(**fields)))
        until(lambda: backend.running == fields.get("n", 1) and backend.wrote > 3)
        if how == "half":
            one.shutdown(socket.SHUT_WR)
        elif how == "reset":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how != "half":
            one.close()
        until(lambda: backend.running == 0)
        assert backend.closed_early == fields.get("n", 1)
        assert backend.wrote < 200
        until(lambda: server.app.state.admission._inside == 0)
        status = "200" if fields.get("stream") else "499"
        until(lambda: f'status="{status}"}} 1.0' in server.get("/metrics").text)
        one.close()


def test_a_client_that_goes_before_its_request_is_whole_is_no_error() -> None:
    with served(ScriptedBackend()) as server:
        for part in (HEAD, HEAD + b"Content-Length: 50\r\n\r\n{", b"", b"POST"):
            with server.raw() as one:
                one.sendall(part)
        until(lambda: not server.server.server_state.connections)
        assert 'status="500"' not in server.get("/metrics").text
        assert server.post(asked()).status_code == 200


# --- the end --------------------------------------------------------------------------------------------------------


def stop(server: Served) -> None:
    server.server.handle_exit(2, None)


def test_what_has_begun_is_finished_and_nothing_new_begins() -> None:
    backend = ScriptedBackend(lambda request: "the cat " * 20, pause=0.03)
    with served(backend) as server:
        kept = httpx.Client(trust_env=False, timeout=30)
        kept.get(f"{server.url}/health")
        found: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: found.append(server.post(asked())))
        asking.start()
        until(lambda: backend.running == 1)
        stop(server)
        try:
            late = kept.post(f"{server.url}/v1/chat/completions", json=asked())
        except httpx.TransportError:
            pass  # nobody listens any more
        else:
            assert late.status_code == 503
        asking.join()
        assert found[0].json()["choices"][0]["message"]["content"] == "the cat " * 20
        server.thread.join(20)
        assert not server.thread.is_alive()


def test_a_stopping_server_says_so() -> None:
    with served(ScriptedBackend()) as server:
        server.app.state.admission.stopping = True
        reply = server.post(asked())
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
        assert server.get("/v1/models").status_code == 503
        health = server.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "stopping")


@pytest.mark.parametrize("fields", [{"stream": True}, {}])
def test_what_takes_too_long_to_finish_is_told(fields: dict[str, Any]) -> None:
    backend = slow()
    with served(backend, shutdown_timeout=1.0) as server:
        found: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: found.append(server.post(asked(**fields))))
        asking.start()
        until(lambda: backend.running == 1)
        began = time.monotonic()
        stop(server)
        asking.join()
        server.thread.join(20)
        assert not server.thread.is_alive()
        assert time.monotonic() - began < 10
        assert "shutting down" in found[0].text
        assert found[0].status_code == (200 if fields else 503)
        assert backend.running == 0


def test_a_port_in_use_is_an_error_that_says_so() -> None:
    with bound_socket("127.0.0.1", 0) as one, pytest.raises(OSError, match="--port 0"):
        bound_socket("127.0.0.1", one.getsockname()[1])


def test_small_writes_go_out_at_once() -> None:
    """With Nagle's algorithm a token waits for the acknowledgement of the one before: 40 ms."""

    async def delayed() -> bool:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[int] = loop.create_future()

        def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        one = bound_socket("127.0.0.1", 0)
        async with await asyncio.start_server(accepted, sock=one):
            _, writer = await asyncio.open_connection(*one.getsockname())
            try:
                return not await found
            finally:
                writer.close()

    assert not asyncio.run(delayed())


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: elsewhere.example\r\nContent-Type: application/json\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    ],
    ids=["media type", "host", "health"],
)
def test_who_is_refused_before_the_body_cannot_keep_the_connection(head: bytes) -> None:
    with (
        served(ScriptedBackend(), read_timeout=1, keep_alive=1) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as one,
    ):
        one.sendall(head + b"Content-Length: 1000\r\n\r\n")
        received = one.recv(4096)
        time.sleep(0.2)
        with contextlib.suppress(ConnectionError):
            one.sendall(b"x")
            while got := one.recv(4096):  # a timeout here is a connection that is kept
                received += got
    assert received.startswith(b"HTTP/1.1 4")
