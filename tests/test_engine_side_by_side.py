"""Batches side by side: every result once, errors heard, threads given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import pytest
import torch
from transformers import Cache

from rolewise.engine.kv import GrowingLayer, cut_rows, join_rows, keep_rows, kept_in_place
from rolewise.engine.side_by_side import side_by_side


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_result_comes_once(workers: int) -> None:
    def task(number: int) -> Iterator[tuple[int, int]]:
        yield from ((number, at) for at in range(number))

    got = list(side_by_side([partial(task, number) for number in range(7)], workers))
    assert sorted(got) == [(number, at) for number in range(7) for at in range(number)]
    assert list(side_by_side([], workers)) == []


def test_tasks_run_at_the_same_time_and_threads_are_given_back() -> None:
    meeting = threading.Barrier(2, timeout=20)
    before = torch.get_num_threads()

    def task() -> Iterator[int]:
        meeting.wait()  # passes only when both tasks have come so far
        yield torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        assert list(side_by_side([task, task], 2)) == [1, 1]
        assert torch.get_num_threads() == 2
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [2], "a thread that starts later inherited a worker's share"
    finally:
        torch.set_num_threads(before)


def test_an_error_ends_all_and_is_heard() -> None:
    begun: list[int] = []

    def task(number: int) -> Iterator[int]:
        begun.append(number)
        time.sleep(0.01)
        if number == 3:
            raise ValueError("task 3 is broken")
        yield number

    with pytest.raises(ValueError, match="task 3 is broken"):
        list(side_by_side([partial(task, number) for number in range(500)], 2))
    assert len(begun) < 500
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rolewise-batch")]


def test_a_task_without_results_can_be_ended_too() -> None:
    steps: list[int] = []

    def long(first: bool) -> Iterator[int | None]:
        for step in range(1000):
            steps.append(step)
            time.sleep(0.001)
            yield 7 if first and step == 3 else None

    results = side_by_side([partial(long, True), partial(long, False)], 2)
    assert next(results) == 7
    results.close()  # type: ignore[attr-defined]
    assert len(steps) < 500
    assert list(side_by_side([lambda: iter([None, 1, None])], 1)) == [1]


def test_threads_that_start_meanwhile_have_their_usual_number() -> None:
    before, seen = torch.get_num_threads(), list[int]()

    def task() -> Iterator[int | None]:
        for _ in range(30):
            time.sleep(0.005)
            yield None
        yield torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        results = side_by_side([task, task], 2)
        outside = threading.Thread(target=lambda: (time.sleep(0.05), seen.append(torch.get_num_threads())))
        outside.start()
        assert list(results) == [1, 1]
        outside.join()
        assert seen == [2]
    finally:
        torch.set_num_threads(before)


def test_an_empty_queue_of_a_task_is_its_own_error() -> None:
    def task() -> Iterator[int]:
        yield SimpleQueue[int]().get_nowait()

    with pytest.raises(Empty):
        list(side_by_side([task, task], 2))


def test_whoever_stops_listening_ends_the_work() -> None:
    begun: list[int] = []

    def task(number: int) -> Iterator[int]:
        begun.append(number)
        time.sleep(0.01)
        yield number

    results = side_by_side([partial(task, number) for number in range(500)], 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 500
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rolewise-batch")]


def layers_of(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(layer.keys[..., : layer.length, :], layer.values[..., : layer.length, :]) for layer in cache.layers]


def test_rows_are_dropped_without_copying_the_rest() -> None:
    assert kept_in_place([True, False, True, False, True, True]) == [0, 5, 2, 4]
    assert kept_in_place([True] * 3) == [0, 1, 2]
    assert kept_in_place([False] * 3) == []
    torch.manual_seed(0)
    keys, values = torch.randn(2, 6, 2, 9, 4)
    cache = Cache(layers=[GrowingLayer(keys.clone(), values.clone(), length=7)])
    rows = kept_in_place([True, False, True, False, True, True])
    storage = cache.layers[0].keys.data_ptr()
    keep_rows(cache, rows)
    assert torch.equal(layers_of(cache)[0][0], keys[rows, :, :7])
    assert torch.equal(layers_of(cache)[0][1], values[rows, :, :7])
    assert cache.layers[0].keys.data_ptr() == storage
    with pytest.raises(AssertionError):
        keep_rows(cache, [1, 0])


def test_rows_cut_and_joined_are_the_same_rows() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 2, 9, 4)
    cache = Cache(layers=[GrowingLayer(keys, values, length=8)])
    lengths = [8, 5, 3]
    for copy in (True, False):
        joined = join_rows(cut_rows(cache, lengths, copy=copy), lengths)
        for row, length in enumerate(lengths):
            for got, given in zip(layers_of(joined)[0], (keys, values), strict=True):
                assert torch.equal(got[row, :, 8 - length :], given[row, :, 8 - length : 8])
                assert not got[row, :, : 8 - length].any(), "padding that is not a number would stay one"
    copied, view = (cut_rows(cache, lengths, copy=copy)[0][0][0] for copy in (True, False))
    before = copied.clone()
    cache.layers[0].keys.zero_()
    assert torch.equal(copied, before)
    assert not view.any()
