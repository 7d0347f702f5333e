"""One thread for a model: concurrent requests are collected, and answered together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

_QUIET_SECONDS = 0.05
"""So long without a new job, and those that have come are worked on."""


@dataclass(frozen=True)
class Job:
    """Something to compute, and whom to tell."""

    kind: str
    what: Any
    future: Future[Any]


class Worker:
    """Runs `work` on its thread with all jobs that have come in, up to `window` at a time.

    `work(kind, jobs)` gets jobs of one kind and sets their futures; an error that it raises goes to those of the
    jobs that have no result yet.
    """

    def __init__(self, work: Callable[[str, Sequence[Job]], None], *, window: int) -> None:
        self._work, self._window = work, window
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, kind: str, what: Any) -> Future[Any]:
        """Hand in a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rolewise-model", daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._queue.put(Job(kind, what, future))
        return future

    def close(self) -> None:
        """Finish what was handed in, and end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            jobs, closing = [first], False
            try:
                while len(jobs) < self._window:
                    job = self._queue.get(timeout=_QUIET_SECONDS)
                    if job is None:
                        closing = True
                        break
                    jobs.append(job)
            except Empty:
                pass
            for kind in dict.fromkeys(job.kind for job in jobs):
                # A request that was cancelled meanwhile is not worked on.
                mine = [job for job in jobs if job.kind == kind and job.future.set_running_or_notify_cancel()]
                try:
                    if mine:
                        self._work(kind, mine)
                except BaseException as error:
                    for job in mine:
                        if not job.future.done():
                            job.future.set_exception(error)
            if closing:
                return
