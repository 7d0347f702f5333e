"""The engine in this process, behind the front: a thread for the model, streams for whoever asks."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from rolewise.engine.decoding import NotFiniteError, Request
from rolewise.roles import RoleScheme
from rolewise.serving.backend import Delta, OverloadedError, UnavailableError

if TYPE_CHECKING:
    from rolewise.engine.rows import Row, Written
    from rolewise.modeling import SegmentedCausalLM

logger = logging.getLogger(__name__)

NO_TABLE = "%s has no segment table, so it is run as the bare model; rolewise train gives it one"


class LocalBackend:
    """A segmented model in this process, as `Backend` describes it.

    Args:
        model: the model, in evaluation mode. From `start` to `close` nothing else may use it.
        tokenizer: its tokenizer.
        max_running: answers that are computed together.
        max_waiting: requests that may wait besides.
        kv_tokens: positions of all answers under way, prompts included.
        cache_tokens: positions that are kept of prompts and answers of late; 0 keeps none.
        chunk_tokens: positions of prompts that are read in a step, while running answers wait.

    Raises:
        ValueError: when one of these is out of range.
    """

    def __init__(
        self,
        model: SegmentedCausalLM,
        tokenizer: Any,
        *,
        max_running: int = 16,
        max_waiting: int = 64,
        kv_tokens: int = 32768,
        cache_tokens: int = 16384,
        chunk_tokens: int | None = None,
    ) -> None:
        from rolewise.engine.continuous import ContinuousEngine

        if max_waiting < 0:
            raise ValueError(f"max_waiting={max_waiting} must not be negative")
        self.model, self._tokenizer = model, tokenizer
        self._scheme = model.role_scheme
        self._engine = ContinuousEngine(
            model, tokenizer, max_running=max_running, kv_tokens=kv_tokens, cache_tokens=cache_tokens,
            chunk_tokens=chunk_tokens,
        )  # fmt: skip
        self._most = max_running + max_waiting
        self._kv_tokens = kv_tokens
        self._has_table = True
        self._streams: dict[Row, _Stream] = {}
        self._handed_in: SimpleQueue[Row | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls, name: str, *, scale: float | None = None, device: str | None = None, dtype: str = "auto", **options: Any
    ) -> Self:
        """Load a model and its tokenizer.

        Args:
            name: as `rolewise.load` takes it.
            scale: factor on its table. By default the model's own; a model that comes without a table is run at 0, as
                its fresh one is random.
            device: where it runs; an accelerator if there is one.
            dtype: of the weights, "auto" as they are stored.
            options: as the class takes them.

        Raises:
            ValueError: as `rolewise.load` does, when a model without a table is to be run at another scale than 0, or
                when the logits of a first prompt are no numbers.
        """
        import torch

        from rolewise.modeling import load
        from rolewise.modeling.loading import has_table

        table = has_table(name)
        if not table:
            _refuse_folded(name)
            if scale:
                raise ValueError(f"{name} has no segment table that scale={scale} could be about; train it first")
            logger.warning(NO_TABLE, name)
            scale = 0.0
        model, tokenizer = load(name, dtype=dtype)
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        model.to(device or accelerator or "cpu")  # pyright: ignore[reportArgumentType]
        if scale is not None:
            model.segment_scale = scale
        backend = cls(model.eval(), tokenizer, **options)
        backend._has_table = table
        try:
            backend._engine.reader.try_out()
        except NotFiniteError as error:
            raise ValueError(f"{name} cannot be served: {error}") from error
        return backend

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def scheme(self) -> RoleScheme:
        """Which row each role takes."""
        return self._scheme

    @property
    def positions(self) -> int | None:
        """How many tokens fit, prompt and answer."""
        return min(self._kv_tokens, self._engine.reader.positions or self._kv_tokens)

    @property
    def has_roles(self) -> bool:
        """Whether roles change what it answers: not without a segment table, nor at scale 0."""
        return self._has_table and self._engine.own_scale != 0

    @property
    def takes_scale(self) -> bool:
        """Whether a request may choose its scale."""
        return self._has_table

    async def start(self) -> None:
        """Start the engine's thread.

        Raises:
            UnavailableError: when it was closed, or has failed.
        """
        with self._lock:
            self._require_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rolewise-engine", daemon=True)
                self._thread.start()
                _RUNNING.add(self)

    async def close(self) -> None:
        """End the thread; it takes no longer than the pass through the model that is under way."""
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def stop(self) -> None:
        """As `close`, for whoever has no event loop."""
        self._stopping.set()
        self._handed_in.put(None)
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._fail_all()

    async def healthy(self) -> bool:
        """Whether a request that came now could be answered."""
        thread = self._thread
        return thread is not None and thread.is_alive() and self._failure is None and not self._stopping.is_set()

    async def stream(self, request: Request, *, scale: float | None = None) -> AsyncGenerator[Delta]:
        """One answer, a delta at a time; see `Backend.stream`. `Request.stop` is left to the front.

        Raises:
            OverloadedError: when no more requests can wait.
            UnavailableError: when the engine is not running, or ends before the answer does.
            NotImplementedError: for another scale than 0 on a model that has no table.
            ValueError: when the request does not fit the model.
            RuntimeError: when this answer failed; others go on.
        """
        if scale and not self._has_table:
            raise NotImplementedError(f"this model has no segment table, so it can only be run at scale 0, not {scale}")
        row = self._engine.row(replace(request, stop=()), scale)
        stream = _Stream(asyncio.get_running_loop())
        with self._lock:
            self._require_open()
            if self._thread is None:
                raise UnavailableError("the engine was not started")
            if len(self._streams) >= self._most:
                raise OverloadedError(f"{self._most} requests are running or waiting already")
            self._streams[row] = stream
            self._handed_in.put(row)
        try:
            first = True
            while True:
                delta = await stream.next()
                yield replace(delta, cached_tokens=row.cached_tokens) if first else delta
                first = False
                if delta.ending is not None:
                    return
        finally:
            row.cancelled = True
            with self._lock:
                self._streams.pop(row, None)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise UnavailableError(f"the engine has failed: {self._failure}") from self._failure
        if self._stopping.is_set():
            raise UnavailableError("the engine was closed")

    # --- the engine's thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        engine = self._engine
        try:
            while not self._stopping.is_set():
                for row in _taken(self._handed_in, wait=not engine.busy):
                    if row is not None:
                        engine.submit(row)
                for written in engine.step():
                    self._tell(written)
                    if self._stopping.is_set():
                        break
        except BaseException as error:
            logger.exception("the engine has failed")
            self._failure = error
        self._fail_all()

    def _tell(self, written: Iterable[Written]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, Written]]] = {}
        for one in written:
            if (stream := self._streams.get(one.row)) is not None:
                by_loop.setdefault(stream.loop, []).append((stream, one))
        for loop, news in by_loop.items():
            _call(loop, _deliver, news)

    def _fail_all(self) -> None:
        with self._lock:
            streams, self._streams = list(self._streams.values()), {}
        why = "the engine was closed" if self._failure is None else f"the engine has failed: {self._failure}"
        for stream in streams:
            _call(stream.loop, stream.fail, UnavailableError(why))


def _refuse_folded(name: str) -> None:
    """Before it is said to be a bare model, and before its weights are read."""
    from transformers import PreTrainedConfig

    from rolewise.modeling.attach import FOLDED
    from rolewise.modeling.loading import resolve_source

    source = resolve_source(name)
    if source.suffix != ".gguf" and not (source / "adapter_config.json").exists():
        config, _ = PreTrainedConfig.get_config_dict(str(source))
        if config.get(FOLDED):
            raise ValueError(
                f"{name} was exported folded: OUTPUT's row is in its token embeddings already, so it is no bare model; "
                "serve the model that it was made from, or this one in a stock engine with rolewise.export.FoldedClient"
            )


class _Stream:
    """What was written of an answer and not yet taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._delta: Delta | None = None
        self._error: Exception | None = None
        self._news = asyncio.Event()

    async def next(self) -> Delta:
        """All that was written since the last time, when there is something."""
        await self._news.wait()
        self._news.clear()
        if self._delta is None:
            assert self._error is not None
            raise self._error
        delta, self._delta = self._delta, None
        if self._error is not None:
            self._news.set()
        return delta

    def add(self, written: Written) -> None:
        """Called in the loop."""
        if written.error is not None:
            error = RuntimeError(f"this answer failed: {written.error}")
            error.__cause__ = written.error  # the log shows where
            self.fail(error)
            return
        before = self._delta or Delta(token_ids=[])
        chances = None if written.logprobs is None else [*(before.logprobs or []), *written.logprobs]
        self._delta = Delta(token_ids=[*before.token_ids, *written.token_ids], logprobs=chances, ending=written.ending)
        self._news.set()

    def fail(self, error: Exception) -> None:
        """Called in the loop; what was written before is taken first."""
        if self._error is None:
            self._error = error
        self._news.set()


def _deliver(news: list[tuple[_Stream, Written]]) -> None:
    for stream, written in news:
        stream.add(written)


def _call(loop: asyncio.AbstractEventLoop, what: Any, given: Any) -> None:
    try:
        loop.call_soon_threadsafe(what, given)
    except RuntimeError:  # the loop was closed, and with it whoever listened
        logger.debug("nobody listens any more")


def _taken(queue: SimpleQueue[Row | None], *, wait: bool) -> list[Row | None]:
    found = [queue.get()] if wait else []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found


_RUNNING: weakref.WeakSet[LocalBackend] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # A thread inside PyTorch would crash the interpreter's end.
    for backend in list(_RUNNING):
        backend.stop()
