"""A teacher on loopback that answers as a test tells it: well, late, wrongly, in part, or not at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from rolewise.data.teacher import Request

KEY = "sk-loopback-0123456789abcdef"
"""A secret that must not come out anywhere."""


def questions(count: int, schema: Mapping[str, Any] | None = None) -> list[Request]:
    """Requests that ask q0, q1, ..., with their number as meta."""
    return [
        Request(
            prompt="test", version=1, messages=[{"role": "user", "content": f"q{i}"}], schema=schema, meta={"id": i}
        )
        for i in range(count)
    ]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of the server."""

    content: str | None = "fine"
    finish: str | None = "stop"
    refusal: str | None = None
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5})
    status: int = 200
    error: Any = None
    """The body's `error`, in place of an answer."""
    body: bytes | None = None
    """In place of all that."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    """Seconds before the answer."""
    dribble: float = 0.0
    """Seconds before each further ten bytes of it."""
    cut: int | None = None
    """Close the connection after so many bytes of the body, though more are announced."""
    drop: bool = False
    """Close the connection without an answer."""

    def encoded(self) -> bytes:
        if self.body is not None:
            return self.body
        if self.error is not None:
            return json.dumps({"error": self.error}).encode()
        message = {"role": "assistant", "content": self.content, "refusal": self.refusal}
        choice = {"index": 0, "finish_reason": self.finish, "message": message}
        usage = {} if self.usage is None else {"usage": self.usage}
        return json.dumps({"object": "chat.completion", "model": "mock-1", "choices": [choice], **usage}).encode()


@dataclass(kw_only=True)
class Call:
    """One request that arrived."""

    text: str
    """Of the last message."""
    body: dict[str, Any]
    headers: dict[str, str]
    """By their names in lower case."""
    began: float
    answered: bool = False


class TeacherServer:
    """Serves chat completions while it is open.

    Args:
        answer: from the text of a request's last message and how often it came before, the reply.
    """

    def __init__(self, answer: Callable[[str, int], Reply | str] = lambda text, before: f"answer to {text}") -> None:
        self.calls: list[Call] = []
        self.peak = 0
        """The most calls at one time."""
        self._answer = answer
        self._now = 0
        self._lock = threading.Lock()
        self._seen = Counter[str]()
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that went away

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def texts(self) -> Counter[str]:
        """How often each text was asked."""
        return Counter(call.text for call in self.calls)

    def answered(self) -> Counter[str]:
        """How often each text got a whole answer."""
        return Counter(call.text for call in self.calls if call.answered)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        call = Call(
            text=text, body=body, headers={k.lower(): v for k, v in handler.headers.items()}, began=time.monotonic()
        )
        with self._lock:
            self.calls.append(call)
            before = self._seen[text]
            self._seen[text] += 1
            self._now += 1
            self.peak = max(self.peak, self._now)
        reply = self._answer(text, before)
        reply = Reply(content=reply) if isinstance(reply, str) else reply
        self._closing.wait(reply.delay)
        with self._lock:
            self._now -= 1  # before the answer leaves: the client may call again as soon as it has it
        self._send(handler, reply, call)

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply, call: Call) -> None:
        if reply.drop:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        content = reply.encoded()
        handler.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        size = 10 if reply.dribble else len(content)
        for at in range(0, len(content[: reply.cut]), size):
            handler.wfile.write(content[: reply.cut][at : at + size])
            handler.wfile.flush()
            self._closing.wait(reply.dribble)
        if reply.cut is not None:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_WR)  # half-closed
        else:
            call.answered = reply.status == 200
