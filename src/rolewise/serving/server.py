"""uvicorn, with times and limits on connections that it does not have itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from rolewise.serving.errors import ApiError
from rolewise.serving.settings import ServerSettings
from rolewise.serving.tracing import Trace

logger = logging.getLogger("rolewise.serving")

_PATIENCE = 3
"""Times `read_timeout` for which a client may leave its answer unread."""
_ANOTHER_PORT = {
    errno.EADDRINUSE: "; a server may be running there. Stop it, or take another --port; --port 0 takes a free one",
    errno.EACCES: "; only the administrator may use it. Take a --port above 1023; --port 0 takes a free one",
}
"""Where a port is at fault, and not the address."""
_NO_SUCH_ADDRESS = dict.fromkeys(
    (errno.EADDRNOTAVAIL, socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL),
    "this machine has no such address; --host takes one of its own, 127.0.0.1 for itself alone, 0.0.0.0 for all",
)


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes a free one.

    Raises:
        OSError: when it cannot be had; it says what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves Nagle's algorithm on, and a small write waits 40 ms for an acknowledgement.
    one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host.strip("[]"), port))
        one.listen(1024)
    except OSError as error:
        one.close()
        raise OSError(
            f"cannot listen on {host} port {port}: {_NO_SUCH_ADDRESS.get(error.errno or 0) or error.strerror or error}"
            f"{_ANOTHER_PORT.get(error.errno or 0, '')}"
        ) from error
    one.setblocking(False)
    return one


class Server(uvicorn.Server):
    """A uvicorn server that turns new requests away from the moment on in which it is told to stop.

    Args:
        app: from `create_app`.
        settings: the same as the app's.
        ready: is called when requests can come.
    """

    def __init__(self, app: FastAPI, settings: ServerSettings, ready: Callable[[], None] | None = None) -> None:
        self._app, self._ready = app, ready
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol(settings),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=max(1, round(settings.keep_alive)),
                timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout)),
                h11_max_incomplete_event_size=32 * 1024,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then listen."""
        await super().startup(sockets)
        if self._ready is not None and not self.should_exit:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ctrl-C, or a request to end: what has begun goes on for a while, and nothing new begins."""
        self._app.state.admission.stopping = True
        super().handle_exit(sig, frame)
        # uvicorn would raise it again when all is done; the command ends by itself, with its own status.
        self._captured_signals.clear()
        if self.force_exit:  # what is cut off now would be shown with its traceback
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        if not self.force_exit:
            logger.warning(
                "stopping: what has begun is finished%s", "; Ctrl-C again ends it at once" * (sig == signal.SIGINT)
            )


@contextlib.contextmanager
def running(app: FastAPI, settings: ServerSettings, *, port: int = 0) -> Generator[str]:
    """A server in a thread of this process, for notebooks and tests; gives its URL, and stops it in the end.

    Args:
        app: from `create_app`.
        settings: the same as the app's.
        port: 0 takes a free one.

    Raises:
        OSError: when the port is taken.
        RuntimeError: when a model cannot be started.
    """
    one = bound_socket(settings.host, port)
    started = threading.Event()
    server = Server(app, settings, started.set)

    def run() -> None:
        try:
            server.run(sockets=[one])
        except SystemExit:
            pass  # uvicorn's way to say that the app did not start
        finally:
            started.set()

    thread = threading.Thread(target=run, name="rolewise-server", daemon=True)
    thread.start()
    started.wait()
    try:
        if not server.started:
            raise RuntimeError(f"the server did not start: {app.state.failed}") from app.state.failed
        yield url_of(settings.host, one.getsockname()[1])
    finally:
        app.state.admission.stopping = True
        server.should_exit = True
        thread.join()
        one.close()


def url_of(host: str, port: int) -> str:
    """Where a server that is bound to `host` can be found from this machine."""
    name = host.strip("[]")
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def others_find_at(host: str, port: int) -> str | None:
    """Where other machines find a server that listens on all addresses; "" where this machine has no network, and None
    for a server that listens on one."""
    known = {"": "192.0.2.1", "0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}  # nobody's
    if (far := known.get(host.strip("[]"))) is None:
        return None
    try:
        with socket.socket(socket.AF_INET6 if ":" in far else socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect((far, 9))  # which sends nothing, but chooses the address that would be sent from
            return url_of(one.getsockname()[0], port)
    except OSError:
        return ""


def _protocol(settings: ServerSettings) -> type[H11Protocol]:
    class Limited(_LimitedProtocol):
        limits = settings

    return Limited


class _LimitedProtocol(H11Protocol):
    """One connection: headers must come in time, answers must be read, and there are only so many connections."""

    limits: ServerSettings

    _headers_due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            transport.abort()
            return
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A request that has begun to come keeps its first deadline, however its bytes trickle in.
        if self.conn.their_state is not h11.IDLE:
            self._no_longer("_headers_due")
        elif self._headers_due is None and self.timeout_keep_alive_task is None:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer("_headers_due")
        self._no_longer("_reading_due")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_due = self.loop.call_later(_PATIENCE * self.limits.read_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        self._no_longer("_reading_due")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg.rstrip(".")))

    def _expect_headers(self) -> None:
        self._headers_due = self.loop.call_later(self.limits.read_timeout, self._too_late)

    def _too_late(self) -> None:
        self._headers_due = None
        if not self.transport.is_closing():
            self._refuse(ApiError(408, f"no request came within {self.limits.read_timeout:g} s", code="timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Say why, and hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error.encoded()
            headers: list[tuple[bytes, bytes]] = [
                (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"), (b"x-request-id", Trace().id.encode()),
            ]  # fmt: skip
            events: list[Any] = [
                h11.Response(status_code=error.status, headers=headers, reason=STATUS_PHRASES[error.status]),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ]
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _no_longer(self, timer: str) -> None:
        if (handle := getattr(self, timer)) is not None:
            handle.cancel()
            setattr(self, timer, None)
