"""What every request passes before it reaches a route: host, key, media type, size and time of its body.

The whole body is read here, within its limits, so that no route can forget them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rolewise.serving.admission import Admission
from rolewise.serving.backend import OverloadedError
from rolewise.serving.errors import ApiError, api_error
from rolewise.serving.metrics import Metrics
from rolewise.serving.settings import ServerSettings, is_loopback
from rolewise.serving.tracing import TRACE, Trace, named

logger = logging.getLogger("rolewise.serving")
access = logging.getLogger("rolewise.serving.access")

_LARGE_BODIES = 16
"""Bodies of the largest size that may be held at a time: it bounds the memory, whoever holds the connections."""

_ENDPOINTS = ("/v1/chat/completions", "/v1/models", "/health", "/metrics", "/openapi.json", "/playground", "/v1")


class Guard:
    """The outermost layer of the app; it also counts, and turns whatever is raised into an error that clients know."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, admission: Admission, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._admission = admission
        self._metrics = metrics
        self._held = 0
        self._keys = tuple(_digest(key.encode()) for key in settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = perf_counter()
        body: list[bytes] = []
        status = 0
        trace = Trace()
        TRACE.set(trace)

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff"),
                                      (b"x-request-id", trace.id.encode())]  # fmt: skip
            await send(message)

        try:
            headers: Mapping[bytes, bytes] = dict(scope["headers"])
            try:
                self._check(scope, headers)
            except ApiError as error:
                # Its body stays unread, and uvicorn has no timer for a client that goes on sending it for ever.
                error.headers = {**error.headers, "Connection": "close"}
                raise
            # To a HEAD, all that takes GET answers; uvicorn leaves the body out.
            asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self._app(asked, await self._with_body(body, headers, receive), counted)
        except GoneError:
            pass
        except asyncio.CancelledError:
            if not self._admission.stopping:
                raise
            if not status:  # a stream has told already why it ends
                await send_error(_stopping(), counted)
        except Exception as error:
            if status:
                raise
            if api_error(error).status == 500:
                logger.exception("%s", named(f"{_line(scope)} failed"))
            await send_error(api_error(error), counted)
        finally:
            self._held -= sum(map(len, body))
            endpoint = _endpoint(scope["path"])
            self._metrics.requests.labels(endpoint, str(status or 499)).inc()
            self._metrics.seconds.labels(endpoint).observe(perf_counter() - began)
            if self._settings.log_requests:
                access.info(
                    "%s %s %s, %.3f s, %d + %d tokens, %s", datetime.now(UTC).strftime("%FT%TZ"), _line(scope),
                    status or "client gone", perf_counter() - began, trace.read, trace.written, trace.id,
                )  # fmt: skip

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        settings = self._settings
        if not _known_host(headers.get(b"host", b""), settings):
            # A web page whose name was made to point here would otherwise be of the same origin as this server.
            raise ApiError(
                403, "this server is not known under the name in the Host header; address it by its own, or start "
                "it with --allowed-host NAME", code="unknown_host",
            )  # fmt: skip
        if self._keys and not _open(scope) and (problem := self._problem_with_key(headers.get(b"authorization"))):
            raise ApiError(401, problem, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        if self._admission.stopping and scope["path"] != "/health":
            raise _stopping()
        length = headers.get(b"content-length", b"0")
        if not length.strip(b"0") and b"transfer-encoding" not in headers:
            return
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":  # a web page can send other kinds anywhere without asking
            raise ApiError(415, "send a body of Content-Type: application/json", code="unsupported_media_type")
        if not length.isdigit() or int(length[:20]) > settings.max_body_bytes:
            raise _too_large(settings)

    def _problem_with_key(self, authorization: bytes | None) -> str:
        scheme, _, key = (authorization or b"").strip().partition(b" ")
        given = _digest(key.strip())
        found = False
        for known in self._keys:  # all of them, so that the time does not tell which
            found |= hmac.compare_digest(known, given)
        if not authorization:
            return "no API key was sent, and this server asks for one: send it as 'Authorization: Bearer KEY'"
        if scheme.lower() != b"bearer" or not key.strip():
            return "the Authorization header is not 'Bearer KEY', with one of this server's API keys"
        return "" if found else "the API key that was sent is none of this server's; ask whoever runs it for one"

    async def _with_body(self, chunks: list[bytes], headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """`receive` for the app, the whole body read into `chunks`."""
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return receive
        settings = self._settings
        size = 0
        try:
            async with asyncio.timeout(settings.read_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise GoneError
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self._held += len(chunks[-1])
                    if size > settings.max_body_bytes:
                        raise _too_large(settings)
                    if self._held > _LARGE_BODIES * settings.max_body_bytes:
                        raise OverloadedError("too many large requests at a time; try again later")
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise ApiError(
                408, f"the body did not come within {settings.read_timeout:g} s", code="timeout",
                headers={"Connection": "close"},
            ) from None  # fmt: skip
        chunks[:] = [b"".join(chunks)]
        whole: Message | None = {"type": "http.request", "body": chunks[0], "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        return replay


class GoneError(Exception):
    """The client has gone away; there is nobody to tell."""


async def send_error(error: ApiError, send: Send) -> None:
    """A whole response that is an error."""
    body = error.encoded()
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _known_host(host: bytes, settings: ServerSettings) -> bool:
    """Whether the server goes by the name in a Host header."""
    if not settings.loopback and not settings.allowed_hosts:
        return True
    name = host.decode("latin-1").strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name in settings.allowed_hosts or (settings.loopback and is_loopback(name))


def _too_large(settings: ServerSettings) -> ApiError:
    return ApiError(
        413, f"the body has more than the {settings.max_body_bytes:,} bytes that this server takes",
        code="body_too_large", headers={"Connection": "close"},
    )  # fmt: skip


def _stopping() -> ApiError:
    return ApiError(503, named("the server is shutting down"), code="unavailable", headers={"Connection": "close"})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _open(scope: Scope) -> bool:
    """What needs no key: the health check, and the playground's page with its files (nothing is answered there)."""
    path: Any = scope["path"]
    return path == "/health" or (
        scope["method"] in ("GET", "HEAD") and (path == "/" or path.startswith("/playground/static/"))
    )


def _line(scope: Scope) -> str:
    """Method and path for the log: as they were sent, so that no line can be forged, and without the query."""
    path = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
    return f"{scope['method'][:20]} {ascii(path[:200].decode('latin-1'))[1:-1]}"


def _endpoint(path: str) -> str:
    """The path as a label; what clients make up is one label."""
    if path == "/":
        return "/playground"
    return next((known for known in _ENDPOINTS if path == known or path.startswith(f"{known}/")), "other")
