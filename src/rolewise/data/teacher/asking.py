"""Many calls at one time, in a thread of their own, so that whoever takes the results may be slow or stop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from rolewise.data.teacher.cache import AnswerCache
from rolewise.data.teacher.checking import ASK_AGAIN, judged
from rolewise.data.teacher.config import TeacherConfig
from rolewise.data.teacher.endpoints import endpoint_of
from rolewise.data.teacher.failures import Again, Failure, Lost, pause, without_key
from rolewise.data.teacher.pace import Budget, Pace
from rolewise.data.teacher.requests import Accepted, Answer, Reason, Rejected, Request, Result, estimated_prompt
from rolewise.data.teacher.totals import Totals

GRACE_SECONDS = 2.0
"""How long calls under way may go on when the run is stopped: they are paid for."""
GIVEN_UP_IN_A_ROW = 10
"""So many requests given up one after the other end the run: the server is away."""


def settled(config: TeacherConfig, cache: AnswerCache, request: Request, key: str) -> tuple[Result | None, int]:
    """What the cached answers to a request come to, or None and which attempt is next."""
    result: Result | None = None
    for attempt in range(config.attempts):
        answer = cache.get(f"{key}:{attempt}")
        if answer is None:
            return None, attempt
        result = judged(request, answer, attempt)
        if isinstance(result, Accepted) or result.reason not in ASK_AGAIN:
            break
    return result, config.attempts


class Asking:
    """Requests asked until each has its result.

    Args:
        config: the teacher.
        key: the secret to show it.
        cache: where answers go as they come.
        jobs: requests by content key, none of them settled yet.
        totals: counts calls and tokens.

    Raises:
        ImportError: when the endpoint's library is not installed; it names the extra.
        ValueError: when there is no such model, or the address is none.
    """

    def __init__(
        self, config: TeacherConfig, key: str, cache: AnswerCache, jobs: Mapping[str, Request], totals: Totals
    ) -> None:
        self._config, self._key, self._cache, self._totals = config, key, cache, totals
        self._jobs = iter(jobs.items())
        self._workers = min(config.concurrency, len(jobs))
        self._endpoint = endpoint_of(config, key)
        self._pace = Pace(config.requests_per_minute, config.tokens_per_minute)
        self._budget = Budget(config.budget_tokens, cache.tokens)
        self._given_up = 0
        self._calling: set[asyncio.Task[Any]] = set()
        self._stop = asyncio.Event()
        self._results: queue.SimpleQueue[tuple[str, Result] | BaseException | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rolewise-teacher", daemon=True)

    def results(self) -> Generator[tuple[str, Result]]:
        """Results by content key, as they come."""
        self._thread.start()
        try:
            while (item := self._results.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:  # also on Ctrl-C, and when the caller takes no more
            self.stop()

    def stop(self) -> None:
        """Start no further call, and wait a little for those under way."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._ask_all())
            self._results.put(None)
        except BaseException as error:
            self._results.put(error)
        finally:
            self._loop.close()

    async def _ask_all(self) -> None:
        async with self._endpoint:
            stop: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
            left: set[asyncio.Task[Any]] = {asyncio.create_task(self._work()) for _ in range(self._workers)}
            failed: list[BaseException] = []
            while left and not self._stop.is_set():
                done, pending = await asyncio.wait({*left, stop}, return_when=asyncio.FIRST_COMPLETED)
                left = pending - {stop}
                failed = [error for task in done - {stop} if (error := task.exception())]
                if failed:
                    self._stop.set()
            for task in left - self._calling:
                task.cancel()
            if left:
                _, late = await asyncio.wait(left, timeout=GRACE_SECONDS)
                for task in late:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
            stop.cancel()
            if failed:
                raise failed[0]

    async def _work(self) -> None:
        for key, request in self._jobs:
            result = await self._settle(key, request)
            if result is None or self._stop.is_set():
                return  # what came is in the cache
            self._results.put((key, result))

    async def _settle(self, key: str, request: Request) -> Result | None:
        """Ask until there is a result; None when the run is stopped before."""
        prompt = estimated_prompt(request)
        most = prompt + self._config.max_tokens
        while True:
            result, attempt = settled(self._config, self._cache, request, key)
            if result is not None or self._stop.is_set():
                return result
            if not await self._budget.reserve(most):
                again = " again" if attempt else ""
                why = f"not asked{again}: it may take {most:,} tokens, more than are left of budget_tokens"
                return Rejected(request=request, reason=Reason.OVER_BUDGET, detail=why)
            used = 0
            try:
                answer = await self._call(f"{key}:{attempt}", request, most)
                if isinstance(answer, Rejected) or answer is None:
                    return answer
                used = answer.tokens
            finally:
                await self._budget.settle(most, used)

    async def _call(self, key: str, request: Request, most: int) -> Answer | Rejected | None:
        """One answer, kept under `key`; repeated while the server or the connection fails."""
        why = ""
        for repetition in range(self._config.max_retries + 1):
            await self._pace.ready(most)
            answer = await self._try(key, request)
            self._pace.took(most, answer.tokens if isinstance(answer, Answer) else 0)
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, Again):
                self._given_up = 0
            if isinstance(answer, Answer):
                return answer
            if isinstance(answer, Lost):
                return Rejected(request=request, reason=answer.reason, detail=answer.why)
            if self._stop.is_set():
                return None
            why = answer.why
            self._totals.failed_calls += 1
            if repetition < self._config.max_retries:
                self._pace.hold(answer.after or 0.0)
                await asyncio.sleep(pause(repetition))
        self._given_up += 1
        tries = f"{self._config.max_retries + 1} tries"
        if self._given_up >= max(GIVEN_UP_IN_A_ROW, self._config.concurrency):
            raise ConnectionError(
                f"{self._endpoint.name} does not answer: {self._given_up} requests one after the other were given up "
                f"after {tries} (the last one: {why}); what came is kept, run the same again when it is back"
            )
        return Rejected(request=request, reason=Reason.GAVE_UP, detail=f"{tries}; the last one: {why}")

    async def _try(self, key: str, request: Request) -> Answer | Failure:
        task = asyncio.current_task()
        assert task is not None
        self._calling.add(task)
        try:
            async with asyncio.timeout(self._config.timeout):  # the SDK's own starts anew with every byte
                answer = await self._endpoint.answer(request)
            if not isinstance(answer, Answer):
                return answer
            quotable = {name: without_key(getattr(answer, name), self._key) for name in ("text", "refusal", "model")}
            answer = replace(answer, **quotable)
            self._cache.put(key, answer)
            self._totals.count(answer)
            return answer
        except TimeoutError:
            return Again(why=f"no answer within {self._config.timeout:g} seconds")
        finally:
            self._calling.discard(task)
