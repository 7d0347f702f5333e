"""The suite `capability`, end to end: follow-ups behind the model's own answers, ratings, win rates, kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")

from rolewise.cli import main
from rolewise.evaluation import Run, read_runs, summarise
from rolewise.evaluation.running import Plan, run_plan
from rolewise.evaluation.testsets import chosen_benchmarks
from tests.stub_models import ASKED, STUBS
from tests.test_safety_suites import flat, run_task
from tests.training_model import save_tiny_model

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["Write of apples.", "Rewrite it in one line."]},
    {"question_id": 111, "category": "math", "turns": ["Two and two?", "Twice that?"], "reference": ["four", "eight"]},
]
ROWS = [
    {"instruction": "Say it.", "input": "", "output": " It. "},
    {"instruction": "Sum up.", "input": "A text.", "output": "T"},
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    questions, rows = tmp_path / "questions.jsonl", tmp_path / "rows.json"
    questions.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    rows.write_text(json.dumps(ROWS))
    return {"data": str(questions), "references": str(rows)}


def by_id(run: Run) -> dict[str, Any]:
    return {one.id: one for one in run.outcomes}


def test_follow_ups_stand_behind_the_models_own_answers(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []

    def look(messages: Any) -> str:
        prompts.append(messages[-1].text)
        return STUBS["grader"](messages)

    monkeypatch.setitem(STUBS, "looking", look)
    ASKED.clear()
    run = run_task(tmp_path, "capability", grader="looking", **files)
    assert (run.complete, len(run.outcomes)) == (True, 4)
    assert ASKED["plain"] == 2 * 2 + 2, "each turn once"
    found = by_id(run)
    writing = found["mt-bench-81"]
    assert [(message["role"], message["content"][:16]) for message in writing.messages] == [
        ("user", "Write of apples."), ("assistant", "Here is answer 1"), ("user", "Rewrite it in on"),
    ]  # fmt: skip
    assert writing.output.startswith("Here is answer 2")
    assert (writing.grades, writing.kind) == ({"first_turn": 9, "both_turns": 6}, "writing")
    assert found["row-0"].grades.keys() == {"win_rate"}
    # The grader saw both answers for the second rating, one for the first, and references where there are any.
    quality = [prompt for prompt in prompts if '"rating"' in prompt]
    assert len(quality) == 4
    assert sum("Here is answer 2" in prompt for prompt in quality) == 2
    assert all("Here is answer 1" in prompt for prompt in quality)
    of_math = [prompt for prompt in quality if "Two and two?" in prompt]
    assert all("four" in prompt for prompt in of_math)
    assert sum("eight" in prompt for prompt in of_math) == 1
    assert not any("REFERENCE" in prompt for prompt in quality if "apples." in prompt and "Two" not in prompt)
    summary = summarise(run)
    assert list(summary.measures) == ["first_turn", "both_turns", "win_rate"]
    assert {name: one.average and one.average.value for name, one in summary.measures.items()} == {
        "first_turn": 9, "both_turns": 6, "win_rate": 1,
    }  # fmt: skip
    assert set(summary.measures["both_turns"].kinds) == {"writing", "math"}


def test_the_inputs_of_alpaca_rows_are_data_and_references_lose_their_edges(
    files: dict[str, str], tmp_path: Path
) -> None:
    run = run_task(tmp_path, "capability", grader="grader", benchmarks="alpaca_eval", system="Be brief.", **files)
    found = by_id(run)
    assert [message["role"] for message in found["row-1"].messages] == ["system", "user", "data"]
    assert found["row-0"].meta["reference"] == "It."
    assert run.expected == 2


def test_one_turn_and_one_benchmark(files: dict[str, str], tmp_path: Path) -> None:
    ASKED.clear()
    run = run_task(tmp_path, "capability", grader="grader", benchmarks="mt-bench", turns=1, data=files["data"])
    assert (len(run.outcomes), ASKED["plain"]) == (2, 2)
    assert list(summarise(run).measures) == ["first_turn"]


@pytest.mark.parametrize("grader", ["broken", "shapeless"])
def test_what_cannot_be_read_is_ungraded(grader: str, files: dict[str, str], tmp_path: Path) -> None:
    run = run_task(tmp_path, "capability", grader=grader, **files)
    assert run.complete
    summary = summarise(run)
    assert summary.ungraded == 4
    assert {name: (one.average, one.ungraded) for name, one in summary.measures.items()} == {
        "first_turn": (None, 2), "both_turns": (None, 2), "win_rate": (None, 2),
    }  # fmt: skip


def test_no_answer_is_worth_one_point_and_no_grader(files: dict[str, str], tmp_path: Path) -> None:
    ASKED.clear()
    run = run_task(tmp_path, "capability", model="silent", grader="grader", benchmarks="mt_bench", data=files["data"])
    assert {tuple(one.grades.values()) for one in run.outcomes} == {(1, 1)}
    assert ASKED["grader"] == 0


def test_a_killed_run_pays_for_nothing_twice(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(model="stub/dying", suite="capability", task_args={**files, "benchmarks": "mt_bench"},
                grader="stub/grader")  # fmt: skip

    def dying(messages: Any) -> str:
        if ASKED["dying"] == 4:  # the second turn of one question
            raise RuntimeError("the model is gone")
        return STUBS["plain"](messages)

    monkeypatch.setitem(STUBS, "dying", dying)
    ASKED.clear()
    with pytest.raises(RuntimeError, match="the model is gone"):
        run_plan(plan, tmp_path / "logs", description="killed")
    graded = ASKED["grader"]
    monkeypatch.setitem(STUBS, "dying", STUBS["plain"])
    ASKED.clear()
    run = run_plan(plan, tmp_path / "logs", description="again")
    assert (run.complete, summarise(run).ungraded) == (True, 0)
    assert ASKED["dying"] == 1
    assert ASKED["grader"] == 4 - graded
    assert all(len(one.messages) == 3 for one in run.outcomes)


def test_a_tiny_model_whose_second_turn_is_too_long(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_tiny_model(tmp_path / "model")
    questions = [*QUESTIONS, {"question_id": 82, "category": "writing", "turns": ["Write.", "Now longer. " * 100]}]
    Path(files["data"]).write_text("".join(json.dumps(row) + "\n" for row in questions))
    logs = str(tmp_path / "logs")
    command = [
        "eval",
        str(model),
        "--suite",
        "capability",
        "--data",
        files["data"],
        "--references",
        files["references"],
    ]
    common = ["--grader", "stub/grader", "--max-new-tokens", "3", "--log-dir", logs]
    assert main([*command, *common]) == 0
    said = flat(capsys.readouterr().out)
    assert "capability on questions.jsonl, graded: ratings from 1 to 10 and percent" in said
    assert "ungraded answers 1" in said
    (run,) = read_runs([logs])
    long = by_id(run)["mt-bench-82"]
    assert long.ungraded == {"both_turns": "the second turn is too long for the model"}
    assert long.grades == {"first_turn": 9}
    assert [message["role"] for message in long.messages] == ["user"]
    assert by_id(run)["mt-bench-81"].grades == {"first_turn": 9, "both_turns": 6}
    assert main(["eval", "stub/plain", *command[2:], *common]) == 0
    assert main(["report", logs, "-o", str(tmp_path / "report")]) == 0
    report = (tmp_path / "report/report.md").read_text()
    for words in ("## Capability", "MT-Bench, both turns: average", "| writing | MT-Bench, first turn |",
                  "AlpacaEval win rate", "capability-ratings-kinds.svg", "| plain | model |",
                  "5 of 5, 1 ungraded"):  # fmt: skip
        assert words in report, words
    assert "are not compared" not in report, "own answers do not make other conversations"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "capability is measured by a grader, and none is named; give any capable model"),
        (
            ["--grader", "stub/grader", "--benchmarks", "mtbench"],
            "unknown benchmark 'mtbench': did you mean 'mt_bench'",
        ),
        (
            ["--grader", "stub/grader", "--references", "absent.json"],
            "or leave AlpacaEval out with --benchmarks mt_bench",
        ),
        (
            ["--grader", "stub/grader", "--data", "absent.jsonl"],
            "no test file 'absent.jsonl' for capability; name MT-Bench's",
        ),
        (["--criterion", "helped"], "must be one of graded"),
    ],
)
def test_errors(options: list[str], said: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        part for name in ("data", "references") if f"--{name}" not in options for part in (f"--{name}", files[name])
    ]
    assert main(["eval", "stub/plain", "--suite", "capability", *given, *options]) == 2
    assert said in flat(capsys.readouterr().err)


def test_benchmarks_are_named_once() -> None:
    assert chosen_benchmarks("alpaca-eval, mt_bench,alpaca_eval") == ["alpaca_eval", "mt_bench"]
    with pytest.raises(ValueError, match="there are mt_bench, alpaca_eval"):
        chosen_benchmarks("")


def test_without_a_grader_the_task_refuses(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--model-role grader=MODEL"):
        run_task(tmp_path, "capability", **files)
