"""The app: routes, and what they share."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

import rolewise
from rolewise.rendering import data_layout
from rolewise.serving.admission import Admission
from rolewise.serving.answering import Answering
from rolewise.serving.backend import Backend
from rolewise.serving.chat import ChatCompletions
from rolewise.serving.errors import ApiError
from rolewise.serving.guard import Guard
from rolewise.serving.metrics import Metrics
from rolewise.serving.openapi import ERRORS, Health, Model, ModelList, chat_responses, describe
from rolewise.serving.settings import ServerSettings

_REFUSED = {
    "/v1/completions": "text completions would let a client write the text between messages, and with it their roles",
    "/v1/embeddings": "this server answers conversations; it has no embeddings",
    "/v1/responses": "this server has no Responses API",
}
"""Endpoints of OpenAI's that people may look for, and why they are not here."""


def create_app(backends: Mapping[str, Backend], settings: ServerSettings) -> FastAPI:
    """The server as an ASGI app.

    `app.state.answering` maps each model's name to its `Answering`, `app.state.admission` has `stopping`, and
    `app.state.metrics` the counters. Backends are started with the app's lifespan, and closed with it.

    Args:
        backends: by the name under which clients ask for the model; the first is the playground's.
        settings: limits, keys and times.

    Raises:
        ValueError: when there is no backend, or a tokenizer has no chat template.
    """
    if not backends:
        raise ValueError("a server needs a model; give at least one backend")
    for backend in backends.values():
        data_layout(backend.tokenizer)  # a tokenizer without a template is an error now, not at the first request
    metrics, admission = Metrics(), Admission(settings.max_requests)
    renderers = ThreadPoolExecutor(settings.render_workers, thread_name_prefix="rolewise-render")
    large = ThreadPoolExecutor(1, thread_name_prefix="rolewise-render-large")
    models = {
        name: Answering(name, backend, settings, admission=admission, metrics=metrics, renderers=renderers, large=large)
        for name, backend in backends.items()
    }

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        try:
            try:
                for backend in backends.values():
                    await backend.start()
            except Exception as error:
                app.state.failed = error  # uvicorn keeps it to itself
                raise
            yield
        finally:
            await asyncio.gather(*(backend.close() for backend in backends.values()), return_exceptions=True)
            for threads in (renderers, large):
                threads.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="Rolewise", version=rolewise.__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        redirect_slashes=False,  # the address that a redirection names would be made of the client's Host header
        summary="OpenAI-compatible chat completions in which every token has a role.",
    )  # fmt: skip
    app.state.failed = None
    app.state.answering, app.state.admission, app.state.metrics, app.state.settings = (
        models, admission, metrics, settings,
    )  # fmt: skip
    app.add_middleware(Guard, settings=settings, admission=admission, metrics=metrics)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    _add_chat(app, ChatCompletions(models, settings, metrics, renderers))
    _add_models(app, list(backends))
    _add_state(app, backends, admission, metrics)
    _add_refusals(app)
    if settings.has_playground:
        importlib.import_module("rolewise.serving.playground").mount(app, models, settings)
    describe(app, settings)
    return app


class _Chat(Response):
    """Hands over to `ChatCompletions`, which sends by itself."""

    def __init__(self, chat: ChatCompletions, body: bytes) -> None:
        super().__init__()
        self._chat, self._body = chat, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._chat(self._body, scope, receive, send)


def _add_chat(app: FastAPI, chat: ChatCompletions) -> None:
    @app.post("/v1/chat/completions", responses=chat_responses(), response_model=None)
    async def chat_completions(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Answer a conversation; text that nobody in it wrote goes into `data` messages or parts."""
        return _Chat(chat, await request.body())


def _add_models(app: FastAPI, names: list[str]) -> None:
    created = int(time.time())
    cards = {name: {"id": name, "object": "model", "created": created, "owned_by": "rolewise"} for name in names}

    @app.get("/v1/models", response_model=ModelList, responses=ERRORS)
    async def models() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        """The models that can be asked for."""
        return JSONResponse({"object": "list", "data": list(cards.values())})

    @app.get("/v1/models/{model:path}", response_model=Model, responses=ERRORS)
    async def model(model: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        """One of them."""
        if not model:
            raise ApiError(404, "there is no /v1/models/ here: /v1/models was meant")
        if model not in cards:
            raise ApiError(404, f"there is no model {model[:200]!r} here; there is {', '.join(cards)}",
                           param="model", code="model_not_found")  # fmt: skip
        return JSONResponse(cards[model])


def _add_state(app: FastAPI, backends: Mapping[str, Backend], admission: Admission, metrics: Metrics) -> None:
    @app.get("/health", response_model=Health, responses={503: {"model": Health, "description": "Not ready."}})
    async def health() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        """Whether a request that came now would be answered."""
        able = dict(zip(backends, await asyncio.gather(*(one.healthy() for one in backends.values())), strict=True))
        well = all(able.values()) and not admission.stopping
        status = "ok" if well else "stopping" if admission.stopping else "unavailable"
        return JSONResponse({"status": status, "models": able}, 200 if well else 503)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **ERRORS})
    async def prometheus() -> Response:  # pyright: ignore[reportUnusedFunction]
        """What the server counted, for Prometheus."""
        return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_refusals(app: FastAPI) -> None:
    def refuse(path: str, why: str) -> None:
        @app.post(path, include_in_schema=False)
        async def refused() -> None:  # pyright: ignore[reportUnusedFunction]
            raise ApiError(404, f"there is no {path}: {why}; use /v1/chat/completions", code="unsupported_endpoint")

    for path, why in _REFUSED.items():
        refuse(path, why)


async def _http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        path, what = request.url.path[:200], str(error.detail)
        allowed = (error.headers or {}).get("Allow", "another method")
        if error.status_code == 404:
            what = f"there is no {path} here{_meant(request)}"
        elif error.status_code == 405:
            what = f"{path} does not take {request.method[:20]}; send {allowed}"
        told = ApiError(error.status_code, what, headers=error.headers)
    else:
        told = ApiError(400, "; ".join(str(one.get("msg")) for one in _problems(error)))
    return Response(told.encoded(), told.status, headers=told.headers, media_type="application/json")


def _meant(request: Request) -> str:
    """Which path was meant: clients forget /v1, or write it or a slash once too often."""
    parts = [part for part in request.url.path[:200].split("/") if part and part != "v1"]
    known = {route.path for route in request.app.routes if isinstance(route, APIRoute)}
    for path in (f"/v1/{'/'.join(parts)}", f"/{'/'.join(parts)}"):
        if path in known and path != request.url.path:
            base = "; a client's base_url ends with /v1" if path.startswith("/v1/") else ""
            return f": {path} was meant{base}"
    return ": the API is at /v1"


def _problems(error: Exception) -> list[Any]:
    return list(error.errors()) if isinstance(error, RequestValidationError) else []
