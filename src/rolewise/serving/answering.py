"""From messages to pieces of an answer: the one way, for the API and the playground alike.

    prompt = await answering.render(messages)
    async with answering.admitted():
        async with contextlib.aclosing(answering.stream(prompt, Sampling(max_tokens=64), scale=0.0)) as pieces:
            async for piece in pieces:
                ...

`app.state.answering` maps the name of each model to its `Answering`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from rolewise.engine.decoding import Request
from rolewise.rendering import render
from rolewise.roles import Role, RoleScheme
from rolewise.serving.admission import Admission
from rolewise.serving.backend import Backend, UnavailableError
from rolewise.serving.bounds import LeastTokens, contents
from rolewise.serving.errors import ApiError
from rolewise.serving.metrics import Metrics
from rolewise.serving.reading import AnswerReader, Piece, TokenTexts
from rolewise.serving.settings import ServerSettings
from rolewise.serving.tracing import TRACE, named
from rolewise.tools.format import ToolFormat, tool_format

logger = logging.getLogger("rolewise.serving")

_LARGE = 128 * 1024
"""Characters of a conversation that take so long to render that others should not wait for it."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A conversation as the model sees it, and what is needed to read the answer."""

    input_ids: list[int]
    segment_ids: list[int]
    """The row of the segment table that each token takes; `answering.scheme.names[row]` is its name."""
    opening: str = ""
    """The text of the generation prompt, in which a template may have begun a thought."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """The schemas of the tools that the model was told of."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to answer."""

    max_tokens: int | None = None
    """None for as many as the server allows."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many of the likeliest tokens to report for each place; None reports nothing, not even the one taken."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


def model_of(models: Mapping[str, Answering], name: str) -> Answering:
    """The model of that name.

    Raises:
        ApiError: 404, when there is none; it names those that there are.
    """
    if (found := models.get(name)) is None:
        known = ", ".join(models)
        raise ApiError(
            404, f"there is no model {name[:200]!r} here; there is {known}", param="model", code="model_not_found"
        )
    return found


class Answering:
    """Answers of one model.

    Args:
        name: the model's, as clients call it.
        backend: the engine behind it.
        settings: the server's.
        admission: who may come in, over all models.
        metrics: what is counted.
        renderers: threads that render.
        large: the thread that renders what is large, one at a time; by default `renderers` do.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        settings: ServerSettings,
        *,
        admission: Admission,
        metrics: Metrics,
        renderers: ThreadPoolExecutor,
        large: ThreadPoolExecutor | None = None,
    ) -> None:
        self.name = name
        self.backend = backend
        self.settings = settings
        self._admission = admission
        self._counts = metrics.of(name)
        self._renderers, self._large = renderers, large or renderers
        self._least: LeastTokens | None = None
        self._tool_format: ToolFormat | None = None
        self._texts: dict[str, TokenTexts] = {}

    @property
    def scheme(self) -> RoleScheme:
        """Which row of the segment table each role takes."""
        return self.backend.scheme

    @property
    def stopping(self) -> bool:
        """Whether the server is shutting down."""
        return self._admission.stopping

    def admitted(self, answers: int = 1) -> contextlib.AbstractContextManager[None]:
        """Within, so many answers count as under way; `render` and `stream` belong inside.

        Raises:
            OverloadedError: when there are too many.
        """
        return self._admission.admitted(answers)

    async def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        enable_thinking: bool | None = None,
    ) -> Prompt:
        """A conversation as the model sees it, rendered off the event loop.

        Args:
            messages: as `rolewise.render` takes them.
            tools: schemas of the tools to offer.
            enable_thinking: handed to the chat template, where it is set.

        Raises:
            ApiError: when the conversation cannot be rendered, or is too long; it names why.
        """
        loop = asyncio.get_running_loop()
        threads = self._renderers
        if sum(map(len, contents(messages))) > _LARGE:
            await loop.run_in_executor(threads, self._refuse_early, messages)
            threads = self._large
        prompt = await loop.run_in_executor(threads, self._render, messages, tools, enable_thinking)
        self._check_length(len(prompt.input_ids))
        return prompt

    def _refuse_early(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """What cannot be short enough is not worth seconds of rendering."""
        if self._least is None:
            self._least = LeastTokens(self.backend.tokenizer)
        self._check_length(self._least.of_conversation(messages), "at least ")

    def _check_length(self, tokens: int, about: str = "") -> None:
        positions, problem = self.backend.positions, ""
        if tokens > self.settings.max_prompt_tokens:
            problem = f"this server takes {self.settings.max_prompt_tokens}"
        elif positions is not None and tokens >= positions:  # an answer needs one at least
            problem = f"there is room for {positions} here, the answer included"
        if problem:
            said = f"the conversation has {about}{tokens} tokens, and {problem}; shorten it"
            raise ApiError(400, said, param="messages", code="context_length_exceeded")

    async def stream(
        self, prompt: Prompt, sampling: Sampling, *, scale: float | None = None
    ) -> AsyncGenerator[Piece, None]:
        """One answer, a piece at a time. Closing the iterator (`aclose`) ends the work on it.

        Args:
            prompt: from `render`.
            sampling: how to answer.
            scale: factor on the segment table, in place of the model's own.

        Raises:
            OverloadedError, UnavailableError, NotImplementedError: as the backend does.
        """
        reader = self._reader(prompt, sampling)
        request = self._request(prompt, sampling)
        began, first = perf_counter(), True
        self._counts.asked(len(request.input_ids))
        source = self.backend.stream(request, scale=scale)
        try:
            async with contextlib.aclosing(source) as deltas:  # pyright: ignore[reportArgumentType]
                async for delta in deltas:
                    piece = reader.take(delta)
                    if first:
                        first = False
                        self._counts.first_token(perf_counter() - began, delta.cached_tokens)
                        # Even where all is held back, a client learns that its answer has begun.
                        piece = piece or Piece(written=reader.written, cached_tokens=delta.cached_tokens)
                    if piece is not None:
                        yield piece
                    if reader.ended:
                        break
            if not reader.ended:
                raise RuntimeError(f"the engine of {self.name} ended an answer without saying why")
        except UnavailableError as error:  # its words name machines, so that clients get others
            logger.warning("%s", named(f"{self.name} cannot answer: {error}"))
            raise
        finally:
            if (trace := TRACE.get()) is not None:
                trace.read, trace.written = len(request.input_ids), trace.written + reader.written
            self._counts.left(reader.written, started=not first)

    def _request(self, prompt: Prompt, sampling: Sampling) -> Request:
        # Text is ours to cut: an engine that looked for stop strings might decode otherwise.
        return Request(
            input_ids=prompt.input_ids,
            segment_ids=prompt.segment_ids,
            max_new_tokens=sampling.max_tokens or self.settings.max_completion_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            logprobs=sampling.logprobs,
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
        )

    def _reader(self, prompt: Prompt, sampling: Sampling) -> AnswerReader:
        tools = self._tools() if prompt.tools else None
        key = tools.name if tools is not None else ""
        if (texts := self._texts.get(key)) is None:
            texts = self._texts[key] = TokenTexts(self.backend.tokenizer, tools)
        return AnswerReader(texts, stop=sampling.stop, opening=prompt.opening, tools=tools, schemas=prompt.tools)

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], enable_thinking: bool | None
    ) -> Prompt:
        tokenizer, scheme = self.backend.tokenizer, self.scheme
        offered: Any = None
        options: dict[str, Any] = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        try:
            if tools or any("tool_calls" in message for message in messages):
                chosen = self._tools()
                if tools and chosen.name == "plain" and self.settings.tools_role == "data":
                    raise ValueError("this model's template has no tools, and in plain text they cannot be data")
                messages, offered = chosen.prompt(_for_tools(messages, chosen), tools)
            encoding = render(
                tokenizer,
                messages,
                tools=offered,
                add_generation_prompt=True,
                scheme=scheme,
                tools_role=Role.DATA if self.settings.tools_role == "data" else Role.SYSTEM,
                **options,
            )
        except (ValueError, TypeError) as error:
            # As an option of the server, not of the evaluation's provider.
            said = str(error).replace("-M tool_format=plain", "start the server with --tool-format plain")
            raise ApiError(400, said, param="messages") from error
        at = len(encoding.segment_ids)
        while at and encoding.segment_ids[at - 1] == scheme.output:
            at -= 1
        return Prompt(
            input_ids=encoding.input_ids,
            segment_ids=encoding.segment_ids,
            opening=str(tokenizer.decode(encoding.input_ids[at:])),
            tools=tuple(tools),
        )

    def _tools(self) -> ToolFormat:
        if self._tool_format is None:  # most conversations have no tools
            self._tool_format = tool_format(self.backend.tokenizer, self.settings.tool_format)
        return self._tool_format


def _for_tools(messages: Sequence[Mapping[str, Any]], chosen: ToolFormat) -> list[dict[str, Any]]:
    """In plain text, tools are told in the system message, whatever a client calls it."""
    plain = chosen.name == "plain"
    return [
        {**message, "role": "system"} if plain and message["role"] == "developer" else dict(message)
        for message in messages
    ]
