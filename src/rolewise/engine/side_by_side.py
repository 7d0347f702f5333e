"""Independent pieces of work on a CPU's cores side by side, each with its share of PyTorch's threads.

PyTorch cuts every operation into as many parts as there are threads, and waits for all of them before the next one.
The operations of a small model are too short for that: whole batches side by side make more of the same cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_ENDED = object()


def side_by_side(tasks: Sequence[Callable[[], Iterator[T | None]]], workers: int) -> Iterator[T]:
    """What the tasks yield, as it comes; begun in order, `workers` of them at a time.

    The first error of a task ends all, when they yield next; so does closing the iterator. A task yields None where
    it has no result but may be ended.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        for task in tasks:
            yield from (result for result in task() if result is not None)
        return
    threads = torch.get_num_threads()
    waiting: SimpleQueue[Callable[[], Iterator[T | None]]] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    results: SimpleQueue[Any] = SimpleQueue()
    stopped = threading.Event()
    ready = threading.Semaphore(0)

    def work() -> None:
        torch.get_num_threads()  # PyTorch gives a thread its number at the first question; ours comes after
        torch.set_num_threads(max(1, threads // workers))  # of operations that this thread calls
        ready.release()
        try:
            while not stopped.is_set():
                try:
                    task = waiting.get_nowait()
                except Empty:
                    return
                for result in task():
                    if result is not None:
                        results.put((result, None))
                    if stopped.is_set():
                        return
        except BaseException as error:
            results.put((None, error))
        finally:
            results.put(_ENDED)

    running = [threading.Thread(target=work, name=f"rolewise-batch-{number}", daemon=True) for number in range(workers)]
    for thread in running:
        thread.start()
    for _ in running:
        ready.acquire()
    torch.set_num_threads(threads)  # threads that start from now on take the number that was set last, anywhere
    left = workers
    try:
        while left:
            if (message := results.get()) is _ENDED:
                left -= 1
                continue
            result, error = message
            if error is not None:
                raise error
            yield result
    finally:
        stopped.set()
        for thread in running:
            thread.join()
