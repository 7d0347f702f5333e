"""The page at `/`, and what it asks under `/playground/`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from itertools import groupby
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rolewise.attacks import Delimiters, template_delimiters
from rolewise.display import token_texts
from rolewise.evaluation.judging import witness_in
from rolewise.rendering import control_token_ids
from rolewise.roles import Role, RoleScheme
from rolewise.serving.answering import Answering, Prompt, Sampling, model_of
from rolewise.serving.backend import Backend
from rolewise.serving.errors import ApiError, api_error
from rolewise.serving.parsing import LEAST_TEMPERATURE
from rolewise.serving.playground.attacking import attacked, attacks, payloads
from rolewise.serving.playground.page import HEADERS, responses
from rolewise.serving.playground.protocol import (
    MAX_CHARACTERS,
    MAX_DATA,
    AnswerRequest,
    Asked,
    AttackRequest,
    JudgeRequest,
    TokensRequest,
    parse,
)
from rolewise.serving.settings import ServerSettings
from rolewise.serving.tracing import named

MAX_SHOWN = 12_000
"""The most tokens that are shown of a prompt."""

_LOG = logging.getLogger(__name__)


def mount(app: FastAPI, models: Mapping[str, Answering], settings: ServerSettings) -> None:
    """Add the page and its routes; `rolewise.serving.app.create_app` does.

    Args:
        app: the server's.
        models: what answers, by name, in the order in which the page shows them.
        settings: the server's.
    """
    served = dict(responses())
    page = APIRouter(include_in_schema=False)

    @page.get("/")
    async def index() -> Response:
        return served["index.html"]

    @page.get("/playground/static/{name}")
    async def static(name: str) -> Response:
        if name not in served or name == "index.html":
            raise ApiError(404, f"the playground has no file {name!r}")
        return served[name]

    app.include_router(page)
    app.include_router(_Routes(models, settings).router)


class _Routes:
    """What the page asks."""

    def __init__(self, models: Mapping[str, Answering], settings: ServerSettings) -> None:
        self._models = models
        self._settings = settings
        self._delimiters: dict[str, Delimiters] = {}
        self.router = APIRouter(prefix="/playground", include_in_schema=False)
        self.router.get("/info")(self.info)
        self.router.post("/answer")(self.answer)
        self.router.post("/tokens")(self.tokens)
        self.router.post("/attack")(self.attack)
        self.router.post("/judge")(self.judge)

    async def info(self) -> Response:
        from rolewise import __version__

        return _json(
            {
                "version": __version__,
                "models": {name: _columns(one.backend) for name, one in self._models.items()},
                "attacks": attacks(),
                "payloads": payloads(),
                "limits": {
                    "characters": MAX_CHARACTERS,
                    "data_boxes": MAX_DATA,
                    "max_tokens": self._settings.max_completion_tokens,
                },
            }
        )

    async def answer(self, request: Request) -> Response:
        asked = await _asked(request, AnswerRequest)
        answering = model_of(self._models, asked.model)
        most = self._settings.max_completion_tokens
        if asked.max_tokens > most:
            raise ApiError(400, f"max_tokens={asked.max_tokens} is above this server's {most}", param="max_tokens")
        return _Lines(_events(answering, asked, self._settings.request_timeout))

    async def tokens(self, request: Request) -> Response:
        asked = await _asked(request, TokensRequest)
        answering = model_of(self._models, asked.model)
        with answering.admitted():
            prompt = await answering.render(asked.plain())
            return _json(await asyncio.to_thread(_shown, answering.backend.tokenizer, answering.scheme, prompt))

    async def attack(self, request: Request) -> Response:
        asked = await _asked(request, AttackRequest)
        answering = model_of(self._models, asked.model)

        def made() -> dict[str, Any]:
            if asked.model not in self._delimiters:
                self._delimiters[asked.model] = template_delimiters(answering.backend.tokenizer)
            return attacked(asked, self._delimiters[asked.model])

        try:
            return _json(await asyncio.to_thread(made))
        except (ValueError, TypeError) as error:
            raise ApiError(400, str(error)) from error

    async def judge(self, request: Request) -> Response:
        asked = await _asked(request, JudgeRequest)
        return _json({"followed": await asyncio.to_thread(witness_in, asked.output, asked.witness)})


async def _asked(request: Request, kind: type[Asked]) -> Asked:
    return parse(kind, await request.body())


def _columns(backend: Backend) -> dict[str, bool]:
    """Which answers of a model can be told apart: with its roles, and without."""
    return {"on": backend.has_roles, "off": backend.has_roles and backend.takes_scale}


def _json(body: Any) -> Response:
    return JSONResponse(body, headers={**HEADERS, "Cache-Control": "no-store"})


class _Lines(StreamingResponse):
    """Events as JSON, one a line. A client that goes away ends the work on them at once."""

    def __init__(self, events: AsyncGenerator[dict[str, Any], None]) -> None:
        self._events = events
        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        lines = (json.dumps(event, ensure_ascii=False) + "\n" async for event in events)
        super().__init__(lines, media_type="application/x-ndjson", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        async with contextlib.aclosing(self._events):  # which a response that is cut off would leave to the collector
            await super().__call__(scope, receive, send)


async def _events(answering: Answering, asked: AnswerRequest, timeout: float) -> AsyncGenerator[dict[str, Any], None]:
    """What happens to an answer: `text` again and again, and at last `end` or `error`."""
    temperature = asked.temperature if asked.temperature >= LEAST_TEMPERATURE else 0.0
    sampling = Sampling(max_tokens=asked.max_tokens, temperature=temperature, seed=asked.seed)
    deadline = asyncio.get_running_loop().time() + timeout
    try:
        with answering.admitted():
            async with asyncio.timeout_at(deadline):
                prompt = await answering.render(asked.plain())
            source = answering.stream(prompt, sampling, scale=None if asked.roles else 0.0)
            async with contextlib.aclosing(source) as pieces:
                while True:
                    async with asyncio.timeout_at(deadline):
                        piece = await anext(pieces)
                    yield {
                        "type": "text" if piece.ending is None else "end",
                        "text": piece.text,
                        "reasoning": piece.reasoning,
                        "tokens": piece.written,
                        **({} if piece.ending is None else {"ending": piece.ending}),
                    }
                    if piece.ending is not None:
                        return
    except Exception as error:  # the status is sent already: what is wrong must be said in the stream
        told = api_error(error)
        if told.status == 500:
            _LOG.exception("%s", named(f"an answer of {answering.name} failed"))
        yield {"type": "error", "status": told.status, **told.body()}


def _shown(tokenizer: Any, scheme: RoleScheme, prompt: Prompt) -> dict[str, Any]:
    """A prompt's tokens in runs of one role, as the page draws them; no more than `MAX_SHOWN`."""
    ids, segments = prompt.input_ids[:MAX_SHOWN], prompt.segment_ids[:MAX_SHOWN]
    control = control_token_ids(tokenizer)
    tokens = zip(segments, token_texts(tokenizer, ids, segments), ids, strict=True)
    counts = Counter(prompt.segment_ids)
    return {
        "count": len(prompt.input_ids),
        "shown": len(ids),
        "roles": [
            {"name": name, "role": _style(scheme, row), "count": counts[row]} for row, name in enumerate(scheme.names)
        ],
        "runs": [
            {
                "name": scheme.names[row],
                "role": _style(scheme, row),
                "tokens": [[text, token, token in control] for _, text, token in run],
            }
            for row, run in groupby(tokens, key=lambda token: token[0])
        ],
    }


def _style(scheme: RoleScheme, row: int) -> str:
    """The role in whose colour a row is shown: the first that takes it."""
    return next(role for role in Role if scheme.row(role) == row).name.lower()
