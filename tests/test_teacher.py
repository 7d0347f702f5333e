"""A teacher that answers well, and one that does not: no row is lost or doubled, and no answer is paid for twice."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rolewise.data.teacher import Accepted, Reason, Rejected, Request, Result, Teacher, TeacherConfig, asking, failures
from rolewise.data.teacher.asking import GIVEN_UP_IN_A_ROW
from rolewise.data.teacher.failures import retry_after
from tests.teacher_server import KEY, Reply, TeacherServer, questions

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(failures, "FIRST_PAUSE", 0.01)


def ask(
    server: TeacherServer | str, requests: list[Request], tmp_path: Path, **settings: Any
) -> tuple[list[Result], Teacher]:
    url = server if isinstance(server, str) else server.url
    config = TeacherConfig(**{"model": "mock", "base_url": url, "timeout": 20.0, "max_retries": 3, **settings})
    with Teacher(config, tmp_path / "answers.jsonl") as teacher:
        return list(teacher.answers(requests, progress=False)), teacher


def ids(results: list[Result]) -> list[int]:
    return sorted(result.request.meta["id"] for result in results)


FAILING = (
    Reply(status=429, error={"message": "slow down"}, headers={"Retry-After": "0.05"}),
    Reply(status=500, error={"message": "oops"}),
    Reply(status=503, body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
    Reply(status=408, body=b""),
    Reply(status=409, error="conflict"),
    Reply(drop=True),
    Reply(cut=30),
    Reply(body=b'{"choices": []}'),
    Reply(body=b"<html>a proxy</html>", headers={"Content-Type": "text/html"}),
    Reply(body=b'{"error": {"message": "upstream"}}'),
    Reply(content=["parts"]),  # type: ignore[arg-type]
)


def test_whatever_fails_at_first_comes_out_once_and_is_paid_for_once(tmp_path: Path) -> None:
    def answer(text: str, before: int) -> Reply | str:
        kind = int(text[1:]) % (len(FAILING) + 1)
        return FAILING[kind] if kind < len(FAILING) and before == 0 else f"answer to {text}"

    requests = questions(48)
    with TeacherServer(answer) as server:
        results, teacher = ask(server, requests, tmp_path)
        failing = sum(i % (len(FAILING) + 1) < len(FAILING) for i in range(48))
        assert ids(results) == list(range(48))
        assert all(isinstance(one, Accepted) and one.text == f"answer to q{one.request.meta['id']}" for one in results)
        assert teacher.totals.failed_calls == failing
        assert teacher.totals.asked == teacher.totals.accepted == 48
        assert teacher.totals.prompt_tokens == 480
        assert len(server.calls) == 48 + failing

        again, teacher = ask(server, requests, tmp_path)
        assert ids(again) == list(range(48))
        assert {one.text for one in again if isinstance(one, Accepted)} == {f"answer to q{i}" for i in range(48)}
        assert len(server.calls) == 48 + failing
        assert (teacher.totals.cached, teacher.totals.asked) == (48, 0)


def test_a_server_that_never_ends_its_answer_is_left_after_the_timeout(tmp_path: Path) -> None:
    def answer(text: str, before: int) -> Reply | str:
        if before:
            return "late"
        return Reply(delay=60) if text == "q0" else Reply(dribble=0.5)  # each byte is in time, the whole is not

    with TeacherServer(answer) as server:
        began = time.monotonic()
        results, teacher = ask(server, questions(2), tmp_path, timeout=2.0)
        assert time.monotonic() - began < 45
        assert [one.text for one in results if isinstance(one, Accepted)] == ["late", "late"]
        assert teacher.totals.failed_calls == 2


@pytest.mark.parametrize(
    ("reply", "schema", "reason", "calls"),
    [
        (Reply(content="nice", refusal="I would rather not"), None, Reason.REFUSAL, 1),
        (Reply(content='{"n": 1', finish="length"), SCHEMA, Reason.TRUNCATED, 1),
        (Reply(content=None, finish="content_filter"), None, Reason.CONTENT_FILTER, 1),
        (Reply(status=400, error={"message": "flagged", "code": "content_filter"}), None, Reason.CONTENT_FILTER, 1),
        (Reply(content=" \n"), None, Reason.EMPTY, 2),
        (Reply(content=None), SCHEMA, Reason.EMPTY, 2),
        (Reply(content='{"n": 1'), SCHEMA, Reason.BROKEN_JSON, 2),
        (Reply(content='{"n": 1, "n": 2}'), SCHEMA, Reason.BROKEN_JSON, 2),
        (Reply(content='{"n": "one"}'), SCHEMA, Reason.SCHEMA, 2),
        (Reply(content='{"n": 1, "m": 2}'), SCHEMA, Reason.SCHEMA, 2),
        (Reply(content="half a \ud800 character"), None, Reason.BROKEN_JSON, 2),
        (Reply(status=400, error={"message": "This model's maximum context length is 9"}), None, Reason.TOO_LONG, 1),
        (Reply(status=500, error={"message": "oops"}), None, Reason.GAVE_UP, 4),
    ],
)
def test_what_cannot_be_used_is_counted_with_its_reason(
    reply: Reply, schema: dict[str, Any] | None, reason: Reason, calls: int, tmp_path: Path
) -> None:
    with TeacherServer(lambda text, before: reply if text == "q1" else '{"n": 3}') as server:
        results, teacher = ask(server, questions(3, schema), tmp_path)
        (rejected,) = [one for one in results if isinstance(one, Rejected)]
        assert (rejected.request.meta["id"], rejected.reason) == (1, reason)
        assert rejected.detail
        assert rejected.raw == (reply.refusal or reply.content or "" if reply.status == 200 else "")
        assert server.texts() == {"q0": 1, "q1": calls, "q2": 1}
        assert teacher.totals.rejected == {reason: 1}
        assert teacher.totals.accepted == 2

        ask(server, questions(3, schema), tmp_path)  # what was answered is not asked again, though it was no use
        paid = reply.status == 200
        assert server.texts()["q1"] == (calls if paid else 2 * calls)
        assert server.texts()["q0"] == 1


def test_an_answer_that_cannot_be_used_is_asked_for_again_and_each_answer_is_kept(tmp_path: Path) -> None:
    replies = ["no JSON", '{"n": "x"}', '```json\n{"n": 7}\n```']
    with TeacherServer(lambda text, before: replies[before]) as server:
        (first,), _ = ask(server, questions(1, SCHEMA), tmp_path, attempts=1)
        assert isinstance(first, Rejected)
        assert first.reason is Reason.BROKEN_JSON
        (second,), _ = ask(server, questions(1, SCHEMA), tmp_path, attempts=3)
        assert isinstance(second, Accepted)
        assert (second.value, second.attempt) == ({"n": 7}, 2)
        assert len(server.calls) == 3
        (third,), teacher = ask(server, questions(1, SCHEMA), tmp_path, attempts=3)
        assert isinstance(third, Accepted)
        assert (third.value, len(server.calls), teacher.totals.cached) == ({"n": 7}, 3, 1)


@pytest.mark.parametrize(
    ("status", "error", "kind", "remedy"),
    [
        (400, {"message": "Unsupported parameter: max_tokens"}, ValueError, "max_completion_tokens"),
        (400, {"message": "Invalid name: string too long"}, ValueError, "structured=json_object"),
        (401, {"message": "no such key"}, PermissionError, "OPENAI_API_KEY"),
        (402, {"message": "pay first"}, PermissionError, "credit"),
        (403, {"message": "not yours"}, PermissionError, "set a model"),
        (404, {"message": "unknown"}, ValueError, "base_url"),
        (422, "bad field", ValueError, "temperature=null"),
        (429, {"message": "quota", "code": "insufficient_quota"}, PermissionError, "credit"),
        (429, {"message": "tomorrow"}, ConnectionError, "3600 seconds"),
    ],
)
def test_what_no_repetition_mends_ends_the_run_at_once_and_keeps_what_came(
    status: int, error: Any, kind: type[Exception], remedy: str, tmp_path: Path
) -> None:
    wrong = Reply(status=status, error=error, headers={"Retry-After": "3600"})
    with TeacherServer(lambda text, before: wrong if text == "q2" else "fine") as server:
        with pytest.raises(kind, match=remedy) as caught:
            ask(server, questions(12), tmp_path, concurrency=1)
        assert f"({status}: " in str(caught.value) or f"({status})" in str(caught.value)
        assert server.url in str(caught.value)
        assert server.texts() == {"q0": 1, "q1": 1, "q2": 1}

        server._answer = lambda text, before: "fine"
        results, teacher = ask(server, questions(12), tmp_path)
        assert ids(results) == list(range(12))
        assert teacher.totals.cached == 2
        assert server.texts() == {"q0": 1, "q1": 1, "q2": 2} | {f"q{i}": 1 for i in range(3, 12)}


def test_a_run_that_ends_waits_for_the_calls_under_way_which_are_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "GRACE_SECONDS", 20.0)

    def answer(text: str, before: int) -> Reply:
        return Reply(status=401, error="no") if text == "q0" and not before else Reply(delay=0.4)

    with TeacherServer(answer) as server:
        with pytest.raises(PermissionError):
            ask(server, questions(4), tmp_path, concurrency=4)
        results, _ = ask(server, questions(4), tmp_path)
        assert ids(results) == list(range(4))
        assert server.texts() == {"q0": 2, "q1": 1, "q2": 1, "q3": 1}


def test_the_pause_that_a_server_asks_for_is_kept_by_all(tmp_path: Path) -> None:
    busy = Reply(status=429, error="wait", headers={"Retry-After": "0.7"})
    with TeacherServer(lambda text, before: busy if text == "q0" and not before else Reply(delay=0.02)) as server:
        results, _ = ask(server, questions(30), tmp_path, concurrency=3)
        assert len(results) == 30
        began = sorted(call.began for call in server.calls)
        longest = max(later - earlier for earlier, later in pairwise(began))
        assert longest > 0.6
        assert [call.text for call in server.calls].index("q0") < 3


def test_retry_after_is_read_as_seconds_milliseconds_and_date() -> None:
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after": "9", "retry-after-ms": "250"}) == 0.25
    assert retry_after({"retry-after": "-3"}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    assert retry_after({}) is None
    ahead = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert ahead is not None
    assert 28 < ahead <= 30


def test_pauses_grow_and_differ() -> None:
    failures.FIRST_PAUSE = 1.0
    drawn = [[failures.pause(repetition) for _ in range(50)] for repetition in (0, 3, 40)]
    for pauses, longest in zip(drawn, (1, 8, failures.LONGEST_PAUSE), strict=True):
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_a_server_that_is_away_ends_the_run_only_when_nothing_comes_at_all(tmp_path: Path) -> None:
    with TeacherServer() as server:
        url = server.url
    few, teacher = ask(url, questions(3), tmp_path, max_retries=1)
    assert [one.reason for one in few if isinstance(one, Rejected)] == [Reason.GAVE_UP] * 3
    assert teacher.totals.failed_calls == 6
    with pytest.raises(ConnectionError, match="run the same again"):
        ask(url, questions(500), tmp_path, max_retries=0, concurrency=4)

    def answer(text: str, before: int) -> Reply:  # now and then one comes through
        return Reply() if int(text[1:]) % 9 == 0 else Reply(drop=True)

    with TeacherServer(answer) as server:
        results, teacher = ask(server, questions(3 * GIVEN_UP_IN_A_ROW), tmp_path, max_retries=0, concurrency=1)
        assert ids(results) == list(range(3 * GIVEN_UP_IN_A_ROW))
        assert teacher.totals.rejected == {Reason.GAVE_UP: 26}


def test_equal_requests_are_asked_once_and_each_has_its_result(tmp_path: Path) -> None:
    one, two = questions(2)
    twin = Request(prompt="test", version=1, messages=one.messages, meta={"id": 7})
    with TeacherServer() as server:
        results, teacher = ask(server, [one, two, twin], tmp_path)
        assert ids(results) == [0, 1, 7]
        assert server.texts() == {"q0": 1, "q1": 1}
        assert teacher.totals.cached == 1


def test_the_key_of_an_answer_is_all_that_decides_it() -> None:
    base = {"prompt": "p", "version": 1, "messages": [{"role": "user", "content": "x"}]}
    config = TeacherConfig(model="m")
    key = Request(**base).key(config)
    assert key == Request(**base, meta={"id": 3}).key(TeacherConfig(model="m", base_url="http://h/v1", concurrency=2))
    assert key == Request(**base).key(TeacherConfig(model="m", temperature=1))
    assert len(key) == 64
    others = [
        Request(**{**base, "version": 2}).key(config),
        Request(**{**base, "prompt": "q"}).key(config),
        Request(**{**base, "messages": [{"role": "system", "content": "x"}]}).key(config),
        Request(**base, schema=SCHEMA).key(config),
        Request(**base, schema=SCHEMA).key(TeacherConfig(model="m", structured="none")),
        *(Request(**base).key(TeacherConfig(**{"model": "m", **one})) for one in
          ({"model": "n"}, {"temperature": 0.0}, {"temperature": None}, {"max_tokens": 9})),
    ]  # fmt: skip
    assert len({key, *others}) == 10


def test_what_is_sent_is_what_is_set(tmp_path: Path) -> None:
    schema = {**SCHEMA, "properties": {"n": {"type": "integer"}, "pattern": {"type": "string", "pattern": "x"}}}
    with TeacherServer(lambda *_: '{"n": 1}') as server:
        ask(server, questions(1, schema), tmp_path, temperature=0.3, max_tokens=77)
        ask(server, questions(1, schema), tmp_path, temperature=None, structured="json_object")
        ask(server, questions(1, schema), tmp_path, structured="none", max_tokens_name="max_completion_tokens")
        first, second, third = (call.body for call in server.calls)
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("mock", 0.3, 77)
    sent = first["response_format"]["json_schema"]
    assert sent["name"] == "test"
    assert sent["schema"] == {**SCHEMA, "properties": {"n": {"type": "integer"}, "pattern": {"type": "string"}}}
    assert "temperature" not in second
    assert second["response_format"] == {"type": "json_object"}
    assert "response_format" not in third
    assert (third["max_completion_tokens"], "max_tokens" in third) == (1024, False)


def test_a_caller_that_takes_no_more_stops_the_calls(tmp_path: Path) -> None:
    def taken(results: Iterator[Result]) -> None:
        for _ in results:
            return

    config = {"model": "mock", "timeout": 20.0, "concurrency": 2}
    with TeacherServer(lambda *_: Reply(delay=0.05)) as server:
        with Teacher(TeacherConfig(base_url=server.url, **config), tmp_path / "answers.jsonl") as teacher:
            taken(teacher.answers(questions(50), progress=False))
            results = teacher.answers(questions(100)[50:], progress=False)  # left alone, not closed
            next(results), next(results), next(results)
            with pytest.raises(ValueError, match="still asking"):
                next(teacher.answers(questions(101), progress=False))
        time.sleep(0.3)
        calls = len(server.calls)
        assert calls < 90
        assert not [thread for thread in threading.enumerate() if thread.name == "rolewise-teacher"]
        ask(server, questions(100), tmp_path)
        assert server.texts() == {f"q{i}": 1 for i in range(100)}  # also what nobody had taken


def test_what_cannot_be_asked_is_refused_before_anything_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="no messages"):
        Request(prompt="p", version=1, messages=[])
    with pytest.raises(ValueError, match="cannot be sent"):
        Request(prompt="p", version=1, messages=[{"role": "user", "content": "\ud800"}])
    with TeacherServer() as server:
        with pytest.raises(ValueError, match=r"not a JSON Schema.*type"):
            ask(server, questions(1, {"type": "strange"}), tmp_path)
        for name in ("NOWHERE", "BLANK"):
            monkeypatch.setenv("BLANK", "two words")
            with pytest.raises(ValueError, match=name) as caught:
                ask(server, questions(1), tmp_path, api_key_variable=name)
            assert "two words" not in str(caught.value)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}?key={KEY}")
        with pytest.raises(ValueError, match="OPENAI_BASE_URL must have no user") as caught:
            ask(server, questions(1), tmp_path, base_url=None)
        assert KEY not in str(caught.value)
        for module in ("openai", "jsonschema.exceptions"):
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, module, None)
                with pytest.raises(ImportError, match=r"pip install -e '\.\[teacher\]'"):
                    ask(server, questions(1, SCHEMA), tmp_path)
        assert not server.calls
    assert not (tmp_path / "answers.jsonl").exists()


def test_the_address_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TeacherServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ask(server, questions(1), tmp_path, base_url=None)
        assert len(server.calls) == 1


def test_a_server_without_token_counts_gets_our_estimate(tmp_path: Path) -> None:
    with TeacherServer(lambda *_: Reply(content="x" * 400, usage=None)) as server:
        (result,), teacher = ask(server, questions(1), tmp_path)
    assert isinstance(result, Accepted)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.estimated) == (5, 100, True)
    assert teacher.totals.estimated == 1
    assert "the tokens of 1 answers are our estimate" in str(teacher.totals)
    assert json.loads((tmp_path / "answers.jsonl").read_text())["answer"]["estimated"] is True
