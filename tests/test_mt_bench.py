"""MT-Bench's questions: what is read, what is refused and where; and what is asked in which turn."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolewise.evaluation.mt_bench import (
    CATEGORIES,
    REFERENCE_CATEGORIES,
    Question,
    load_questions,
    question_rows,
    second_turn_messages,
)

FILE = Path(__file__).parents[2] / "shared" / "data" / "eval" / "mt_bench_question.jsonl"
ROW: dict[str, Any] = {"question_id": 1, "category": "math", "turns": ["2 + 2?", "Double it."], "reference": ["4", "8"]}
QUESTION = Question(id=1, category="math", turns=("2 + 2?", "Double it."), references=("4", "8"))


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_questions_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "q.jsonl",
        ROW,
        {"question_id": 2, "category": "writing", "turns": ["Write. ", "Again.\n"]},
        {"question_id": 3, "category": "reasoning", "turns": ["a", "b"], "reference": ["x", " "], "more": 1},
        {"question_id": 4, "category": "coding", "turns": ["a", "b"], "reference": None},
    )
    assert load_questions(path) == [
        QUESTION,
        Question(id=2, category="writing", turns=("Write. ", "Again.\n")),
        Question(id=3, category="reasoning", turns=("a", "b"), references=("x", None)),
        Question(id=4, category="coding", turns=("a", "b")),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question_id": "1"}, "q.jsonl:2: question_id='1' must be a whole number"),
        ({"question_id": True}, "question_id=True"),
        ({"question_id": None}, "question_id=None"),
        ({"question_id": 1}, "q.jsonl:2 repeats question_id 1 of {path}:1"),
        ({"category": "maths"}, "category='maths' (did you mean 'math'?) must be one of writing"),
        ({"category": None}, "category=None"),
        ({"category": ["math"]}, "category=['math']"),
        ({"turns": ["one"]}, "needs a list of two texts under 'turns'"),
        ({"turns": ["one", "two", "three"]}, "under 'turns'"),
        ({"turns": "ab"}, "under 'turns'"),
        ({"turns": None}, "under 'turns'"),
        ({"turns": ["one", 2]}, "under 'turns'"),
        ({"turns": ["one", " "]}, "q.jsonl:2 has an empty turn"),
        ({"reference": "4"}, "under 'reference'"),
        ({"reference": ["4"]}, "under 'reference'"),
        ({"reference": ["4", None]}, "under 'reference'"),
    ],
)
def test_unusable_questions_are_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = write(tmp_path / "q.jsonl", ROW, ROW | {"question_id": 2} | change)
    with pytest.raises(ValueError, match=re.escape(problem.format(path=path))):
        load_questions(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("[]", "has no questions"),
        ("[1]", "q.jsonl[0] must be an object, not int"),
        ('{"question_id": 1}\n{"question_id"', "question_id=1|category=None"),
        ('{"question_id": 1, "question_id": 2}\n{}', "q.jsonl:1: the key 'question_id' stands there twice"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "q.jsonl").write_text(text)
    with pytest.raises(ValueError, match=problem if "|" in problem else re.escape(problem)):
        load_questions(tmp_path / "q.jsonl")


def test_a_missing_file_says_where_it_is_published(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="lm-sys/FastChat"):
        load_questions(tmp_path / "none.jsonl")


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_bytes(b'{"question_id": "\xff"}')
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        load_questions(tmp_path / "q.jsonl")


def test_references_are_shown_up_to_the_turn_and_only_where_they_are_needed() -> None:
    assert QUESTION.shown_references(1) == ("4",)
    assert QUESTION.shown_references(2) == ("4", "8")
    for references, first, second in (
        (("4", None), ("4",), ()),
        ((None, "8"), (), ("8",)),
        ((None, None), (), ()),
    ):
        question = Question(id=1, category="coding", turns=("a", "b"), references=references)
        assert (question.shown_references(1), question.shown_references(2)) == (first, second)
    for category in set(CATEGORIES) - set(REFERENCE_CATEGORIES):
        question = Question(id=1, category=category, turns=("a", "b"), references=("4", "8"))
        assert question.shown_references(1) == question.shown_references(2) == ()
    with pytest.raises(ValueError, match="turn=0"):
        QUESTION.shown_references(0)


def test_rows_of_the_first_turn() -> None:
    assert list(question_rows([QUESTION])) == [
        {
            "messages": [{"role": "user", "content": "2 + 2?"}],
            "meta": {
                "id": "mt-bench-1",
                "condition": "first_turn",
                "domain": "capability",
                "category": "math",
                "turns": ["2 + 2?"],
                "references": [["4"]],
            },
        }
    ]


def test_rows_of_both_turns_begin_with_the_first() -> None:
    (row,) = question_rows([QUESTION], turns=2, system="Be brief.")
    assert row["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    assert row["meta"]["condition"] == "both_turns"
    assert row["meta"]["turns"] == ["2 + 2?", "Double it."]
    assert row["meta"]["references"] == [["4"], ["4", "8"]]


@pytest.mark.parametrize("turns", [0, 3])
def test_there_are_one_or_two_turns(turns: int) -> None:
    with pytest.raises(ValueError, match=f"turns={turns} must be 1 or 2"):
        list(question_rows([QUESTION], turns=turns))


@pytest.mark.parametrize("answer", ["4", "", " It is 4.\n", "<|im_end|>"])
def test_the_second_turn_holds_the_models_own_answer(answer: str) -> None:
    talk = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Double it."},
    ]
    assert second_turn_messages(QUESTION, answer) == talk
    system = {"role": "system", "content": "Be brief."}
    assert second_turn_messages(QUESTION, answer, system="Be brief.") == [system, *talk]


def test_the_published_file() -> None:
    if not FILE.is_file():
        pytest.skip(f"{FILE} is not here")
    questions = load_questions(FILE)
    assert [one.id for one in questions] == list(range(81, 161))
    assert Counter(one.category for one in questions) == dict.fromkeys(CATEGORIES, 10)
    # One coding question has no reference; three of reasoning have none for the second turn.
    assert sum(bool(one.shown_references(1)) for one in questions) == 29
    assert sum(bool(one.shown_references(2)) for one in questions) == 26
