"""MT-Bench: eighty questions of two turns; how an answer is graded is in `rubrics`.

    questions = load_questions(Path("mt_bench_question.jsonl"))
    rows = question_rows(questions)  # the first turn
    messages = second_turn_messages(questions[0], "the model's first answer")

Zheng et al., 2023 (arXiv 2306.05685). Published scores are graded by GPT-4 against GPT-4's own reference answers, which
are a file of their own; with the references of the question file, and with another grader, scores compare among
themselves only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolewise.data.strict_json import Flaw, json_rows
from rolewise.unknown import did_you_mean

CATEGORIES = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
REFERENCE_CATEGORIES = ("reasoning", "math", "coding")
"""Where the grader is shown a reference: there are right answers, and graders get them wrong on their own."""
FIRST_TURN, BOTH_TURNS = "first_turn", "both_turns"
"""Conditions."""
CAPABILITY = "capability"
"""The domain."""

PUBLISHED = (
    "MT-Bench's questions (JSONL with question_id, category, turns, reference; published in the GitHub repository "
    "lm-sys/FastChat, file fastchat/llm_judge/data/mt_bench/question.jsonl)"
)
"""What the file is, and where it is published."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question and its follow-up."""

    id: int
    """MT-Bench's own number, 81 to 160."""
    category: str
    """One of `CATEGORIES`."""
    turns: tuple[str, str]
    """The question, and what is asked about its answer."""
    references: tuple[str | None, str | None] = (None, None)
    """A right answer to each turn, where the file has one."""

    def shown_references(self, turn: int) -> tuple[str, ...]:
        """The references that the grader of turn 1 or 2 is shown: those up to it, in categories that need them.

        Raises:
            ValueError: when `turn` is neither 1 nor 2.
        """
        if turn not in (1, 2):
            raise ValueError(f"turn={turn} must be 1 or 2")
        if self.category not in REFERENCE_CATEGORIES or self.references[turn - 1] is None:
            return ()
        return tuple(reference for reference in self.references[:turn] if reference is not None)


def load_questions(path: Path) -> list[Question]:
    """The questions of a file as MT-Bench publishes it.

    Raises:
        FileNotFoundError: when there is no such file; the message says where it is published.
        ValueError: when a field is missing or of another kind, there are not two turns, a category is not MT-Bench's, a
            question_id stands twice, or there is no question; with the place.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r}; name {PUBLISHED}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    found: list[Question] = []
    seen: dict[int, str] = {}
    for place, row in json_rows(str(path), text):
        if isinstance(row, Flaw):
            raise ValueError(f"{place}: {row.problem}")
        if not isinstance(row, dict):
            raise ValueError(f"{place} must be an object, not {type(row).__name__}")
        question = _question(cast("dict[str, Any]", row), place)
        if (first := seen.setdefault(question.id, place)) != place:
            raise ValueError(f"{place} repeats question_id {question.id} of {first}; leave one of the two out")
        found.append(question)
    if not found:
        raise ValueError(f"{path} has no questions")
    return found


def _question(row: dict[str, Any], place: str) -> Question:
    number = row.get("question_id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{place}: question_id={number!r} must be a whole number")
    category = row.get("category")
    if category not in CATEGORIES:
        hint = did_you_mean(str(category), CATEGORIES)
        raise ValueError(
            f"{place}: category={category!r}{f' ({hint})' if hint else ''} must be one of {', '.join(CATEGORIES)}"
        )
    turns = _two_texts(row.get("turns"), place, "turns")
    if not all(turn.strip() for turn in turns):
        raise ValueError(f"{place} has an empty turn")
    references = _two_texts(row.get("reference") or ["", ""], place, "reference")
    first, second = (reference if reference.strip() else None for reference in references)
    return Question(id=number, category=category, turns=turns, references=(first, second))


def _two_texts(value: Any, place: str, field: str) -> tuple[str, str]:
    texts = cast("list[Any]", value) if isinstance(value, list) else []
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{place} needs a list of two texts under {field!r}, one for each turn, not {value!r:.80}")
    return texts[0], texts[1]


def question_rows(
    questions: Iterable[Question], *, turns: int = 1, system: str | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each question; its messages ask the first turn.

    The second turn cannot be written before the first is answered: `second_turn_messages` does it then.

    Args:
        questions: the questions.
        turns: how many are to be asked, 1 or 2; 2 makes another condition, and nothing else.
        system: a system message in front.

    Raises:
        ValueError: when `turns` is neither 1 nor 2.
    """
    if turns not in (1, 2):
        raise ValueError(f"turns={turns} must be 1 or 2")
    for question in questions:
        yield {
            "messages": _begin(question, system),
            "meta": {
                "id": f"mt-bench-{question.id}",
                "condition": FIRST_TURN if turns == 1 else BOTH_TURNS,
                "domain": CAPABILITY,
                "category": question.category,
                "turns": list(question.turns[:turns]),
                "references": [list(question.shown_references(turn)) for turn in range(1, turns + 1)],
            },
        }


def second_turn_messages(question: Question, first_answer: str, *, system: str | None = None) -> list[dict[str, str]]:
    """What is asked in the second turn: the first, the model's answer to it as it stands, and the follow-up."""
    return [
        *_begin(question, system),
        {"role": "assistant", "content": first_answer},
        {"role": "user", "content": question.turns[1]},
    ]


def _begin(question: Question, system: str | None) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": question.turns[0]}]
    return [{"role": "system", "content": system}, *messages] if system else messages
