"""Answers are kept whatever happens to the process, and the key is kept nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolewise.data.teacher import Answer, AnswerCache, Teacher, TeacherConfig
from tests.teacher_server import KEY, Reply, TeacherServer, questions

ROWS = 60

CHILD = f"""
import sys
from rolewise.data.teacher import Teacher, TeacherConfig, asking
from tests.teacher_server import questions
asking.GRACE_SECONDS = 4.0
url, cache = sys.argv[1:]
config = TeacherConfig(model="mock", base_url=url, concurrency=4, timeout=60)
with Teacher(config, cache) as teacher:
    for result in teacher.answers(questions({ROWS}), progress=True):
        print(result, flush=True)
"""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def stopped(server: TeacherServer, cache: Path, how: signal.Signals, ready: Callable[[], bool]) -> tuple[str, float]:
    """Run a child that asks ROWS questions, and stop it once ready; what it wrote, and how long it took to end."""
    root = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OPENAI_LOG": "debug", "PYTHONPATH": path}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, server.url, str(cache)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 120
        while not ready():
            assert child.poll() is None, child.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        child.send_signal(how)
        sent = time.monotonic()
        output, _ = child.communicate(timeout=30)
        return output, time.monotonic() - sent
    finally:
        child.kill()


def asked(server: TeacherServer, cache: Path) -> Teacher:
    """Ask the same questions here, to the end."""
    config = TeacherConfig(model="mock", base_url=server.url, concurrency=4, timeout=60)
    with Teacher(config, cache) as teacher:
        results = list(teacher.answers(questions(ROWS), progress=False))
    assert sorted(result.request.meta["id"] for result in results) == list(range(ROWS))
    return teacher


def test_a_run_that_was_killed_goes_on_and_repeats_no_answered_call(tmp_path: Path) -> None:
    cache = tmp_path / "answers.jsonl"
    with TeacherServer(lambda *_: Reply(delay=0.02)) as server:
        for answers in (9, 31):
            stopped(server, cache, signal.SIGKILL, lambda least=answers: server.answered().total() >= least)
            kept = cache.read_bytes().count(b"\n")
            assert 0 < kept < ROWS
            # An answer that was on its way when the process died is lost, one for each call at most.
            assert server.answered().total() - kept <= 4 * (1 + (answers == 31))
        before = server.texts()
        teacher = asked(server, cache)
        assert teacher.totals.cached == kept
        assert sum(server.texts().values()) - sum(before.values()) == ROWS - kept
        assert len(cache.read_text().splitlines()) == len({json.loads(line)["key"] for line in cache.open()}) == ROWS


def test_ctrl_c_ends_quickly_keeps_the_calls_under_way_and_shows_no_key(tmp_path: Path) -> None:
    cache = tmp_path / "answers.jsonl"

    def answer(text: str, before: int) -> Reply:
        if 20 <= int(text[1:]) < 24:
            return Reply(delay=300 if text == "q23" and before == 0 else 0.6)
        quoting = {"q3": Reply(content=f"your key is {KEY}"), "q4": Reply(content="no", refusal=f"not with {KEY}")}
        return quoting.get(text, Reply())

    with TeacherServer(answer) as server:
        output, seconds = stopped(server, cache, signal.SIGINT, lambda: "q23" in server.texts())
        assert "KeyboardInterrupt" in output
        assert seconds < 30  # four for the call that hangs, and the process's own end on a busy machine
        assert "openai._base_client" in output  # its debug log is on
        assert "Accepted(request=" in output
        assert KEY not in output
        kept = cache.read_text()
        assert KEY not in kept
        assert "your key is [key]" in kept
        assert "not with [key]" in kept
        asked(server, cache)
        again = {text for text, times in server.texts().items() if times > 1}
        assert again == {"q23"}  # the others under way had ended within the grace


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}"}),
        Reply(status=400, error=f"header Authorization: Bearer {KEY}"),
        Reply(status=500, error={"message": f"trace of {KEY}"}),
        Reply(status=429, error={"message": f"{KEY} is over quota", "code": "insufficient_quota"}),
        Reply(body=f"<html>{KEY}</html>".encode()),
    ],
)
def test_the_key_is_in_no_error_result_report_or_representation(reply: Reply, tmp_path: Path) -> None:
    with TeacherServer(lambda *_: reply) as server:
        config = TeacherConfig(model="mock", base_url=server.url, max_retries=0, timeout=60)
        shown: list[Any] = []
        with Teacher(config, tmp_path / "answers.jsonl") as teacher:
            try:
                shown += teacher.answers(questions(2), progress=False)
            except (ValueError, OSError) as error:
                chain: BaseException | None = error
                while chain is not None:
                    shown.append(chain)
                    chain = chain.__cause__ or chain.__context__
            shown += [teacher.totals, teacher.estimate(questions(2)), config, vars(teacher)]
        assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"  # there it must be
    text = "\n".join(f"{one!s} {one!r}" for one in shown)
    assert KEY not in text
    assert "[key]" in text or reply.body
    assert not any(KEY in file.read_text() for file in tmp_path.rglob("*") if file.is_file())


def test_a_key_in_the_wrong_place_is_refused_without_showing_it() -> None:
    for wrong in ({"api_key_variable": KEY}, {"base_url": f"https://me:{KEY}@host/v1"}):
        with pytest.raises(ValueError, match="key") as caught:
            TeacherConfig(model="m", **wrong)
        assert KEY not in str(caught.value)
    with pytest.raises(ValueError, match="query") as caught:
        TeacherConfig(model="m", base_url=f"https://host/v1?api-key={KEY}")
    assert KEY not in str(caught.value)


ANSWERS = [
    Answer(text=f"{i}\u2028\ud800\n" * (1 + 9 * i), refusal=None, finish="stop", prompt_tokens=i, completion_tokens=1)
    for i in range(5)
]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_cut_off_anywhere_keeps_its_whole_lines_and_takes_more(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cache") / "answers.jsonl"
    with AnswerCache(path) as cache:
        for i, answer in enumerate(ANSWERS):
            cache.put(str(i), answer)
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:at] + b"\0" * data.draw(st.sampled_from([0, 0, 7])))
    whole = content[:at].count(b"\n")
    with AnswerCache(path) as cache:
        assert [cache.get(str(i)) for i in range(5)] == ANSWERS[:whole] + [None] * (5 - whole)
        assert cache.tokens == sum(answer.tokens for answer in ANSWERS[:whole])
        cache.put("more", ANSWERS[0])
    with AnswerCache(path) as cache:
        assert [cache.get(str(i)) for i in range(5)] == ANSWERS[:whole] + [None] * (5 - whole)
        assert cache.get("more") == ANSWERS[0]


def test_an_answer_is_with_the_system_before_put_returns(tmp_path: Path) -> None:
    with AnswerCache(tmp_path / "deep" / "answers.jsonl") as cache:
        for i, answer in enumerate(ANSWERS):
            cache.put(str(i), answer)
            assert cache.path.read_bytes().count(b"\n") == i + 1


def test_a_damaged_line_costs_its_answer_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerCache(path) as cache:
        for i, answer in enumerate(ANSWERS):
            cache.put(str(i), answer)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:20]
    lines[3] = lines[3].replace(b'"finish"', b'"finale"')
    path.write_bytes(b"\n".join(lines))
    with AnswerCache(path) as cache:
        assert [i for i in range(5) if cache.get(str(i))] == [0, 2, 4]


@pytest.mark.parametrize("content", ["precious\n", '{"messages": []}\n', "no line feed", '{"key": 1}\nx'])
def test_a_file_of_something_else_is_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match="in the way"), AnswerCache(path):
        pass
    assert path.read_text() == content


def test_two_runs_do_not_pay_for_the_same_answers(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerCache(path), pytest.raises(BlockingIOError, match="another run"), AnswerCache(path):
        pass
    assert not path.exists()  # nothing came
