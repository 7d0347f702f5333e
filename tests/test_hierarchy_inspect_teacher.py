"""A model of inspect_ai as the teacher: its answers, its failures and its limits come out as an endpoint's do."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolewise.data.hierarchy import Pipeline, recipe_from_dict
from rolewise.data.teacher import Accepted, Reason, Rejected, Teacher, TeacherConfig
from tests.hierarchy_teacher import good_answer, recipe_values, write_sources
from tests.teacher_server import questions

inspect_model = pytest.importorskip("inspect_ai.model")

ASKED = Counter[str]()


class BusyError(Exception):
    """What our provider wants to be asked again after."""


@inspect_model.modelapi(name="rolewise_test_teacher")
class _Provider(inspect_model.ModelAPI):
    """Answers as the text of the request says."""

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        text = input[-1].text
        ASKED[text] += 1
        assert config.max_tokens == 64
        usage = inspect_model.ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
        output = inspect_model.ModelOutput.from_content("teacher-1", "fine")
        output.usage = usage
        match text:
            case "q1" if ASKED[text] < 3:
                raise BusyError("429 with key sk-abcdefghijkl")
            case "q2":
                output.choices[0].stop_reason = "max_tokens"
            case "q3":
                output.choices[0].stop_reason = "content_filter"
            case "q4":
                output.choices[0].stop_reason, output.error = "model_length", "too long"
            case "q5":
                await asyncio.sleep(60)
            case "q6":
                output.usage = None
            case "q7":
                raise ValueError("no such model; key sk-abcdefghijkl")
            case _ if "<" in text:
                output = inspect_model.ModelOutput.from_content("teacher-1", good_answer(text))
        return output

    def should_retry(self, ex: Exception) -> bool:
        return isinstance(ex, BusyError)


def config(**settings: Any) -> TeacherConfig:
    chosen: dict[str, Any] = {"max_tokens": 64, "timeout": 30.0, "concurrency": 4, **settings}
    return TeacherConfig(model="rolewise_test_teacher/x", provider="inspect", **chosen)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)  # its provider knows where its key is
    monkeypatch.setattr("rolewise.data.teacher.asking.pause", lambda repetition: 0.01)
    ASKED.clear()


def test_answers_and_failures_are_told_apart(tmp_path: Path) -> None:
    with Teacher(config(timeout=1.0, max_retries=2), tmp_path / "answers.jsonl") as teacher:
        results = {result.request.meta["id"]: result for result in teacher.answers(questions(7), progress=False)}
        reasons = {id: result.reason for id, result in results.items() if isinstance(result, Rejected)}
        assert reasons == {2: Reason.TRUNCATED, 3: Reason.CONTENT_FILTER, 4: Reason.TOO_LONG, 5: Reason.GAVE_UP}
        first = results[0]
        assert isinstance(first, Accepted)
        assert (first.text, first.usage.prompt_tokens, first.usage.model) == ("fine", 7, "teacher-1")
        assert ASKED["q1"] == 3
        assert ASKED["q5"] == 3
        assert teacher.totals.estimated == 1  # q6
        assert "no answer within 1 seconds" in results[5].detail  # type: ignore[union-attr]
    with Teacher(config(), tmp_path / "answers.jsonl") as teacher:
        again = list(teacher.answers(questions(4), progress=False))
        assert len(again) == 4
        assert ASKED["q0"] == 1  # kept


def test_what_asking_again_cannot_mend_ends_the_run_without_showing_a_key(tmp_path: Path) -> None:
    with Teacher(config(concurrency=1), tmp_path / "answers.jsonl") as teacher:
        with pytest.raises(ValueError, match="refuses the request: no such model") as problem:
            list(teacher.answers(questions(8)[7:], progress=False))
        assert "abcdefghijkl" not in str(problem.value)


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    wrong = TeacherConfig(model="nobody/x", provider="inspect")
    with Teacher(wrong, tmp_path / "a.jsonl") as teacher, pytest.raises(ValueError, match="no model 'nobody/x' for us"):
        list(teacher.answers(questions(1), progress=False))


def test_the_pipeline_takes_such_a_teacher(tmp_path: Path) -> None:
    values = recipe_values(write_sources(tmp_path))
    values["teacher"] = {"model": "rolewise_test_teacher/x", "provider": "inspect", "max_tokens": 64}
    with Pipeline(recipe_from_dict(values), tmp_path / "work", progress=False) as pipeline:
        made = pipeline.make()
    assert len(made.rows) == 56
    assert {row["meta"]["teacher"]["model"] for row in made.rows} == {"teacher-1"}
