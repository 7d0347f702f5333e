"""One thread for a model: concurrent requests are collected, and answered together."""

from __future__ import annotations

import atexit
import threading
import weakref
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


class ProcessEndsError(Exception):
    """The process ends, and nobody waits for an answer any more."""


class Worker:
    """Runs `work` on its thread with all jobs that have come in, up to `window` at a time.

    `work(kind, jobs)` gets jobs of one kind and sets their futures; an error that it raises goes to those of the
    jobs that have no result yet. When the process ends while jobs are being worked on, the thread ends first: a
    thread inside PyTorch would crash the interpreter's end. So long work calls `keep_on()` now and then.
    """

    def __init__(self, work: Callable[[str, Sequence[Job]], None], *, window: int) -> None:
        self._work, self._window = work, window
        self._stopping = threading.Event()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, kind: str, what: Any) -> Future[Any]:
        """Hand in a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rolewise-model", daemon=True)
            self._thread.start()
            _RUNNING.add(self)
        future: Future[Any] = Future()
        self._queue.put(Job(kind, what, future))
        return future

    def keep_on(self) -> None:
        """Called by the work as it goes.

        Raises:
            ProcessEndsError: when it is to end at once.
        """
        if self._stopping.is_set():
            raise ProcessEndsError("the process ends")

    def stop(self) -> None:
        """End the thread without finishing what was handed in."""
        self._stopping.set()
        self.close()

    def close(self) -> None:
        """Finish what was handed in, and end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (first := self._queue.get()) is not None and not self._stopping.is_set():
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


_RUNNING: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for worker in list(_RUNNING):
        worker.stop()
