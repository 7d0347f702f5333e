"""The pipeline with a teacher: no row lost or doubled and no answer paid for twice, whatever server and process do."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolewise.cli import main
from rolewise.data.hierarchy import Made, Pipeline, recipe_from_dict
from rolewise.data.hierarchy.review import review_page
from rolewise.training.rows import parse_row
from tests.hierarchy_teacher import asked, good_answer, recipe_values, write_sources
from tests.teacher_server import KEY, Reply, TeacherServer

STAGES = ("decomposed", "follow", "override", "conflict", "extract", "ask")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def made(values: dict[str, Any], work: Path) -> Made:
    with Pipeline(recipe_from_dict(values), work, progress=False) as pipeline:
        return pipeline.make()


def test_each_stage_is_asked_its_prompt_and_says_so_in_its_rows(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    with TeacherServer(lambda text, _: good_answer(text)) as server:
        values = recipe_values(sources, base_url=server.url)
        found = made(values, tmp_path / "work")
        rows = found.rows
        prompts = Counter(asked(call.text)[0] for call in server.calls)
    assert prompts == {"decompose": 12, "regenerate": 12, "override": 8, "conflict": 8, "extract": 8, "ask": 8}
    assert Counter(row["meta"]["stage"] for row in rows) == dict(zip(STAGES, (12, 12, 8, 8, 8, 8), strict=True))
    named = {row["meta"]["stage"]: row["meta"]["teacher"]["prompt"] for row in rows}
    assert named == dict(zip(STAGES, ("decompose", "regenerate", *STAGES[2:]), strict=True))
    assert all(row["meta"]["teacher"]["version"] == 1 and row["meta"]["teacher"]["model"] == "mock-1" for row in rows)
    for row in rows:
        parse_row(row, place="here")
    by_stage = {row["meta"]["stage"]: row for row in rows}
    roles = {stage: [message["role"] for message in row["messages"]] for stage, row in by_stage.items()}
    assert roles["decomposed"] == ["system", "user", "data", "assistant"]
    assert roles["override"] == roles["ask"] == ["system", "user", "assistant"]
    # What was decomposed keeps its answer; under a system message the answer is the teacher's.
    assert by_stage["decomposed"]["messages"][-1]["content"].startswith("Ferry")
    assert by_stage["follow"]["messages"][-1]["content"].startswith("As the guide I say: Where is hall")
    assert len({row["meta"]["manner"] for row in rows if row["meta"]["stage"] == "ask"}) > 1
    page = review_page(found, 12, recipe_from_dict(values))
    for name in STAGES:
        assert f"The prompt: {named[name]}, version 1" in page
    assert "You write training conversations for an assistant whose system message is confidential." in page


def faulty(text: str, before: int) -> Reply | str:
    """Fails once or twice in every way that heals, and for some rows in a way that does not."""
    draw = hashlib.sha256(text.encode()).digest()[0] % 12
    prompt, _ = asked(text)
    lasting = {
        0: Reply(content=None, refusal="I would rather not."),
        1: Reply(content='{"user": "cut', finish="length"),
        2: Reply(content="this is no JSON"),
        3: Reply(content='{"user": ""}'),
    }
    if draw in lasting and not (prompt == "regenerate" and draw > 1):
        return lasting[draw]
    passing = {4: Reply(status=429, error={"message": "slow down"}, headers={"Retry-After": "0.01"}),
               5: Reply(status=500, error={"message": "oops"}), 6: Reply(content=good_answer(text), cut=20),
               7: Reply(drop=True), 8: Reply(body=b"<html>gateway</html>"), 9: Reply(content=" ")}  # fmt: skip
    return passing[draw] if draw in passing and before == 0 else good_answer(text)


def check_totals(found: Made) -> None:
    """Every row that went in has come out, or is among the rejects with its reason; none is there twice."""
    rejects = Counter(reject["step"] for reject in found.rejects)
    for count in found.counts:
        assert count.taken == count.made + sum(count.rejected.values()), count
        assert sum(count.rejected.values()) == rejects[count.name]
    places = [(row["meta"]["stage"], row["meta"]["id"]) for row in found.rows]  # in the mix
    places += [(reject["step"], reject["id"]) for reject in found.rejects]
    assert len(set(places)) == len(places)
    assert all(reject["reason"] and (reject["detail"] or reject["raw"]) for reject in found.rejects)


def test_whatever_the_server_does_no_row_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolewise.data.teacher.asking.pause", lambda repetition: 0.01)
    values = recipe_values(write_sources(tmp_path, 40), 40)
    for name in ("override", "conflict", "extract", "ask"):
        values["stages"][name]["take"] = 25  # of the rows of `follow` that were not rejected
    values["mix"]["follow"] = 20
    with TeacherServer(faulty) as server:
        values["teacher"]["base_url"] = server.url
        found = made(values, tmp_path / "work")
        check_totals(found)
        reasons = Counter(reject["reason"] for reject in found.rejects)
        assert set(reasons) == {"refusal", "truncated", "broken JSON", "schema violation"}
        calls = len(server.calls)
        again = made(values, tmp_path / "work")
        assert len(server.calls) == calls  # all is finished
        assert again.rows == found.rows
        assert again.rejects == found.rejects
    # A server without the faults that heal gives the same rows: they have left no trace.
    with TeacherServer(lambda text, _: faulty(text, 99)) as server:
        values["teacher"]["base_url"] = server.url
        spared = made(values, tmp_path / "other")
        assert spared.rows == found.rows
        assert spared.rejects == found.rejects  # in the order of the rows, not of the answers


def test_an_answer_of_the_right_shape_that_cannot_be_used_is_rejected(tmp_path: Path) -> None:
    def answer(text: str, _: int) -> str:
        prompt, values = asked(text)
        value = json.loads(good_answer(text)) if prompt != "regenerate" else good_answer(text)
        if "guide 3" in text or "Note 3:" in text:
            if prompt == "decompose":
                value["data"] = "Something that the prompt does not say."
            if prompt == "conflict":
                value["rule"] = "Never speak of trains."
            if prompt == "extract":
                value["answer"] = f"It says: {values['system']}"
        return value if isinstance(value, str) else json.dumps(value)

    with TeacherServer(answer) as server:
        values = recipe_values(write_sources(tmp_path), base_url=server.url)
        for name in ("override", "conflict", "extract", "ask"):
            values["stages"][name]["take"] = 12
        found = made(values, tmp_path / "work")
    assert {(reject["step"], reject["reason"]) for reject in found.rejects} == {
        ("decomposed", "data changed"),
        ("conflict", "rule not in the system message"),
        ("extract", "system message told"),
    }
    assert all(reject["id"].endswith("[3]") for reject in found.rejects)
    check_totals(found)


def run_command(recipe: Path, out: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "rolewise", "data", "hierarchy", str(recipe), "-o", str(out)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_repeats_nothing_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    values = recipe_values(write_sources(tmp_path))
    recipe = tmp_path / "recipe.yaml"

    def slow(text: str, before: int) -> Reply | str:
        draw = hashlib.sha256(text.encode()).digest()[0] % 6
        if draw == 0:
            return Reply(content=None, refusal="no")
        if draw == 1 and before == 0:
            return Reply(content="no JSON") if asked(text)[0] != "regenerate" else Reply(content=" ")
        return Reply(content=good_answer(text), delay=0.02)

    with TeacherServer(slow) as server:
        recipe.write_text(json.dumps({**values, "teacher": {**values["teacher"], "base_url": server.url}}))
        killed, seen = tmp_path / "killed.jsonl", 0
        for most in (5, 20, 38):  # in the first stage, between others, in the last ones
            child = run_command(recipe, killed)
            deadline = time.monotonic() + 120
            while server.answered().total() < most:
                assert child.poll() is None, child.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert not killed.exists()
            kept = (tmp_path / "killed.jsonl.work" / "answers.jsonl").read_bytes().count(b"\n")
            assert kept >= max(seen, most // 2)  # the others are on their way (four), or were of no use (one in six)
            seen = kept
        child = run_command(recipe, killed)
        said, _ = child.communicate(timeout=120)
        assert child.returncode == 0, said
        assert "finished before" in said
        interrupted = server.answered()
        # An answer on its way when the process died is asked for again: at most four a kill, all else once or,
        # where the first answer was of no use, twice.
        answers = [json.loads(line) for line in (tmp_path / "killed.jsonl.work" / "answers.jsonl").open()]
        assert len({answer["key"] for answer in answers}) == len(answers)
        assert interrupted.total() - len(answers) <= 3 * 4
    with TeacherServer(slow) as server:
        recipe.write_text(json.dumps({**values, "teacher": {**values["teacher"], "base_url": server.url}}))
        whole = tmp_path / "whole.jsonl"
        child = run_command(recipe, whole)
        said, _ = child.communicate(timeout=120)
        assert child.returncode == 0, said
    assert killed.read_bytes() == whole.read_bytes()
    assert (tmp_path / "killed.rejects.jsonl").read_bytes() == (tmp_path / "whole.rejects.jsonl").read_bytes()
    assert KEY not in said


def test_the_estimate_is_said_first_and_asks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = recipe_values(write_sources(tmp_path)) | {"price": {"prompt": 1.0, "completion": 4.0}}
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "out.jsonl"
    with TeacherServer(lambda text, _: good_answer(text)) as server:
        values["teacher"]["base_url"] = server.url
        recipe.write_text(json.dumps(values))
        assert main(["data", "hierarchy", str(recipe), "-o", str(out), "--estimate"]) == 0
        said = capsys.readouterr().err
        assert not server.calls
        assert not out.exists()
        assert "decomposed: 12 requests, 0 of them answered already: 12 to ask" in said
        assert "ask (roughly: it waits for other answers): 8 requests" in said
        assert "in the currency of the prices" in said
        assert main(["data", "hierarchy", str(recipe), "-o", str(out)]) == 0
        said = capsys.readouterr().err
        assert said.index("12 to ask") < said.index("decomposed       decompose by teacher")
        assert "56 accepted, 0 rejected; 0 without a call" in said
        assert main(["data", "hierarchy", str(recipe), "-o", str(out), "--estimate"]) == 0
        assert "the teacher has nothing to do" in capsys.readouterr().err


def test_a_spent_budget_stops_the_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with TeacherServer(lambda text, _: good_answer(text)) as server:
        values = recipe_values(write_sources(tmp_path), base_url=server.url, max_tokens=100, budget_tokens=1200)
        with pytest.raises(ValueError, match=r"the budget is spent: \d+ of the \d+ rows of .* raise teacher.budget"):
            made(values, tmp_path / "work")
        calls = len(server.calls)
        assert 0 < calls < 56
        values["teacher"]["budget_tokens"] = 1_000_000
        assert len(made(values, tmp_path / "work").rows) == 56
        assert len(server.calls) == 56


def test_a_prompt_in_two_pieces_is_decomposed_as_one(tmp_path: Path) -> None:
    def answer(text: str, _: int) -> str:
        _, values = asked(text)
        user, _, data = values["prompt"].partition("\n\n")
        return json.dumps({"system": "You name colours.", "user": user, "data": data})

    sources = write_sources(tmp_path)
    with TeacherServer(answer) as server:
        values = {
            "sources": {"alpaca": {"path": sources["alpaca"]}},
            "stages": {"parts": {"kind": "decompose", "source": "alpaca", "take": 48}},
            "mix": {"parts": "all"},
            "teacher": {"model": "mock", "base_url": server.url},
        }
        rows = made(values, tmp_path / "work").rows
    assert sum(len(row["messages"]) == 4 for row in rows) == 24  # those with data still have it
    assert sum(len(row["messages"]) == 3 for row in rows) == 24


def test_rows_without_an_answer_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolewise.data.teacher.asking.pause", lambda repetition: 0.001)
    away = True

    def answer(text: str, _: int) -> Reply | str:
        gone = away and "guide 3" in text and asked(text)[0] == "ask"
        return Reply(status=503, error={"message": "later"}) if gone else good_answer(text)

    with TeacherServer(answer) as server:
        values = recipe_values(write_sources(tmp_path), base_url=server.url, max_retries=1)
        values["stages"]["ask"]["take"] = 12
        first = made(values, tmp_path / "work")
        assert first.unsettled == 1
        assert [reject["reason"] for reject in first.rejects] == ["gave up after retries"]
        away, before = False, len(server.calls)
        second = made(values, tmp_path / "work")
        assert len(server.calls) == before + 1
        assert len(second.rows) == len(first.rows) + 1
        assert second.unsettled == 0


def test_what_is_wrong_is_found_before_the_first_paid_call(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    with TeacherServer(lambda text, _: good_answer(text)) as server:
        values = recipe_values(sources, base_url=server.url)

        def refused(change: dict[str, Any], said: str) -> None:
            recipe = recipe_from_dict({**values, **change})
            problem = pytest.raises((ValueError, FileNotFoundError), match=said)
            with Pipeline(recipe, tmp_path / "work") as pipeline, problem:
                pipeline.estimate()

        last = {**values["stages"], "more": {"kind": "take", "source": "late", "take": 49}}
        more = {**values["mix"], "more": 49}
        late = {**values["sources"], "late": {"path": sources["alpaca"]}}
        refused({"stages": last, "mix": more, "sources": late}, "stages.more takes 49 rows, but late has only 48 left")
        gone = {**late, "late": {"path": str(tmp_path / "gone.json")}}
        refused({"stages": last, "mix": more, "sources": gone}, "no data at .*gone.json")
        refused({"mix": {**values["mix"], "ask": 9}}, "mix wants 9 rows of ask, which has made 8")
        refused({"drop_test": ["gone.jsonl"]}, "no test file at 'gone.jsonl'")
        assert not server.calls
