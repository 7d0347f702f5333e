"""A teacher is asked no faster, no more at one time and for no more tokens than was said, and the cost told before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolewise.data.teacher import Accepted, Price, Reason, Rejected, Request, Result, Teacher, TeacherConfig
from rolewise.data.teacher.pace import BURST_SECONDS, Bucket, Budget, Pace
from tests.teacher_server import KEY, Reply, TeacherServer, questions


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def ask(server: TeacherServer, requests: list[Request], tmp_path: Path, **settings: Any) -> list[Result]:
    config = TeacherConfig(**{"model": "mock", "base_url": server.url, "timeout": 60.0, **settings})
    with Teacher(config, tmp_path / "answers.jsonl") as teacher:
        return list(teacher.answers(requests, progress=False))


@pytest.mark.parametrize("concurrency", [1, 5])
def test_no_more_calls_at_one_time_than_was_said_and_no_fewer(concurrency: int, tmp_path: Path) -> None:
    with TeacherServer(lambda text, _: Reply(delay=0.15) if text < "q2" else Reply()) as server:
        ask(server, questions(24), tmp_path, concurrency=concurrency)
        assert server.peak == concurrency


PER_MINUTE = st.floats(1, 6000)
ARRIVALS = st.lists(st.tuples(st.floats(0, 30), st.floats(0, 500)), min_size=1, max_size=40)


@given(per_minute=PER_MINUTE, arrivals=ARRIVALS)
def test_a_bucket_gives_no_more_in_any_span_than_its_rate_and_one_burst(
    per_minute: float, arrivals: list[tuple[float, float]]
) -> None:
    bucket, now, used = Bucket(per_minute), 0.0, list[tuple[float, float]]()
    for pause, amount in arrivals:
        now += pause
        used.append((now + bucket.take(amount, now), amount))
    rate = per_minute / 60
    for first, (start, _) in enumerate(used):
        given_before = 0.0
        for end, amount in used[first:]:
            assert given_before <= rate * (end - start + BURST_SECONDS) + 1e-6 * (1 + given_before)
            given_before += amount


@given(per_minute=PER_MINUTE, arrivals=ARRIVALS)
def test_a_bucket_lets_nobody_wait_for_longer_than_what_was_taken_needs(
    per_minute: float, arrivals: list[tuple[float, float]]
) -> None:
    bucket, taken = Bucket(per_minute), 0.0
    for _, amount in arrivals:
        wait = bucket.take(amount, 0.0)
        assert wait == pytest.approx(max(0.0, taken / (per_minute / 60) - BURST_SECONDS), abs=1e-6)
        taken += amount


def test_calls_keep_to_the_requests_a_minute(tmp_path: Path) -> None:
    with TeacherServer() as server:
        ask(server, questions(8), tmp_path, requests_per_minute=120)
        began = sorted(call.began for call in server.calls)
    assert began[-1] - began[0] > 1.8  # three in the first burst, then two a second: 2.5 seconds


def test_tokens_that_were_expected_but_not_taken_are_given_back() -> None:
    async def seconds(taken: int) -> float:
        pace, began = Pace(None, 60_000), time.monotonic()
        for _ in range(8):
            await pace.ready(500)
            pace.took(500, taken)
        return time.monotonic() - began

    # 500 tokens need half a second; the first two and the third's start fit into the burst.
    assert asyncio.run(seconds(500)) > 2.3
    assert asyncio.run(seconds(0)) < 2


def test_all_answers_together_keep_to_the_budget_also_over_several_runs(tmp_path: Path) -> None:
    requests = questions(12)  # each reserves 5 tokens and 20, and takes 15
    with TeacherServer(lambda *_: Reply(delay=0.02)) as server:
        results = ask(server, requests, tmp_path, budget_tokens=100, max_tokens=20, concurrency=8)
        rejected = [one for one in results if isinstance(one, Rejected)]
        assert len(server.calls) == 6  # as many as fit, though 8 reservations at one time do not
        assert {one.reason for one in rejected} == {Reason.OVER_BUDGET}
        assert len(results) == 12
        assert len(rejected) == 6
        assert ask(server, requests, tmp_path, budget_tokens=100, max_tokens=20) != []
        assert len(server.calls) == 6  # what an earlier run spent counts
        results = ask(server, requests, tmp_path, budget_tokens=1000, max_tokens=20)
        assert all(isinstance(one, Accepted) for one in results)
        assert server.texts() == {f"q{i}": 1 for i in range(12)}


def test_a_second_answer_needs_budget_too(tmp_path: Path) -> None:
    requests = questions(1, {"type": "object"})
    with TeacherServer(lambda *_: "no JSON") as server:
        (result,) = ask(server, requests, tmp_path, budget_tokens=35, max_tokens=10, attempts=9)
    assert isinstance(result, Rejected)
    assert (result.reason, len(server.calls)) == (Reason.OVER_BUDGET, 2)
    assert "not asked again" in result.detail


@given(st.integers(0, 300), st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), max_size=20))
def test_a_budget_is_never_overspent_and_nobody_waits_for_ever(limit: int, calls: list[tuple[int, int]]) -> None:
    async def spend() -> int:
        budget, spent = Budget(limit, 0), 0

        async def call(most: int, used: int) -> None:
            nonlocal spent
            if await budget.reserve(most):
                await asyncio.sleep(0)
                spent += min(most, used)
                await budget.settle(most, min(most, used))

        async with asyncio.timeout(20):
            await asyncio.gather(*(call(*one) for one in calls))
        return spent

    assert asyncio.run(spend()) <= limit


def test_the_estimate_counts_what_the_run_then_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object"}
    texts = ["x" * 400, "語" * 100, "x" * 400, "y"]
    requests = [Request(prompt="p", version=1, messages=[{"role": "user", "content": text}]) for text in texts]
    requests.append(Request(prompt="p", version=1, messages=[{"role": "user", "content": "z"}], schema=schema))
    with TeacherServer(lambda *_: "{}") as server:
        config = TeacherConfig(model="mock", base_url=server.url, max_tokens=50, budget_tokens=10_000, timeout=60)
        with Teacher(config, tmp_path / "answers.jsonl") as teacher:
            list(teacher.answers(requests[3:4], progress=False))
            monkeypatch.delenv("OPENAI_API_KEY")
            estimate = teacher.estimate(iter(requests), Price(prompt=2.0, completion=8.0))
            assert (estimate.requests, estimate.cached, estimate.to_ask) == (5, 2, 3)
            assert estimate.prompt_tokens == (100 + 4) + (75 + 4) + (1 + 5 + 4)
            assert estimate.most_completion_tokens == 150
            assert estimate.cost == pytest.approx((193 * 2 + 150 * 8) / 1e6)
            assert estimate.budget_left == 10_000 - 15
            assert len(server.calls) == 1
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            list(teacher.answers(requests, progress=False))
            assert len(server.calls) == 1 + estimate.to_ask
            monkeypatch.delenv("OPENAI_API_KEY")  # a run that has all its answers needs none
            assert len(list(teacher.answers(requests, progress=False))) == 5
            assert teacher.estimate(requests).to_ask == 0
    text = str(estimate)
    assert "5 requests, 2 of them answered already: 3 to ask" in text
    assert "enough" in text
    assert "2 times" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": " "}, {"max_tokens": 0}, {"attempts": 0}, {"max_retries": -1}, {"concurrency": 0},
        {"concurrency": 5000}, {"requests_per_minute": 0}, {"tokens_per_minute": 0}, {"budget_tokens": -1},
        {"timeout": 0.0}, {"timeout": float("inf")}, {"temperature": -0.1}, {"temperature": float("nan")},
        {"base_url": "localhost:8000"}, {"base_url": "http://"}, {"base_url": "http://[::1"},
    ],
)  # fmt: skip
def test_settings_that_no_run_can_use_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        TeacherConfig(**{"model": "m", **wrong})
