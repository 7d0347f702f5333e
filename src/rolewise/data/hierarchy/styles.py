"""Rules on the form of an answer that a program can carry out on any answer: the system's, or a user's against it.

Families that the `rules` suite holds out for tests have no place here, and no wording is a test's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

_MOST_RECASED = 500
"""Characters of an answer above which its letters are left alone: capitals cost a token each."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
_LISTED = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Style:
    """A form that an answer can have."""

    family: str
    rule: tuple[str, ...]
    """What the system says to have it."""
    order: tuple[str, ...]
    """What somebody says who wants it from now on."""
    write: Callable[[str], str | None]
    """The answer in this form; None where it does not take it."""


def _recased(change: Callable[[str], str]) -> Callable[[str], str | None]:
    def write(answer: str) -> str | None:
        return change(answer) if len(answer) <= _MOST_RECASED and answer.upper() != answer.lower() else None

    return write


def _in_json(key: str) -> Callable[[str], str | None]:
    return lambda answer: json.dumps({key: answer}, ensure_ascii=False)


def _opened(phrase: str) -> Callable[[str], str | None]:
    return lambda answer: f"{phrase} {answer}"


def _sentences(answer: str) -> list[str] | None:
    parts = [part.strip() for part in _SENTENCE.split(answer) if part.strip()]
    return None if len(parts) < 2 or _LISTED.search(answer) or "```" in answer else parts


def _laid_out(join: Callable[[list[str]], str]) -> Callable[[str], str | None]:
    def write(answer: str) -> str | None:
        parts = _sentences(answer)
        return None if parts is None else join(parts)

    return write


def _case() -> tuple[Style, ...]:
    return (
        Style(
            family="case",
            rule=("Write everything in capital letters.", "CAPITALS only: that is how you answer here.",
                  "You answer in capitals, always."),
            order=("Answer in capital letters.", "Capitals, please, from now on.", "I want it in capital letters."),
            write=_recased(str.upper),
        ),
        Style(
            family="case",
            rule=("Write everything in small letters.", "You never use a capital letter.",
                  "Small letters only: that is how you answer here."),
            order=("Answer in small letters.", "No capital letters from now on.", "I want it in small letters."),
            write=_recased(str.lower),
        ),
    )  # fmt: skip


def _json(key: str) -> Style:
    return Style(
        family="json",
        rule=(f'You answer with JSON and nothing else: {{"{key}": ...}}.',
              f'Put the whole answer under the key "{key}" of a JSON object.',
              f'What you write goes to a program that reads JSON with the key "{key}".'),
        order=(f'The JSON key is now "{key}".', f'Use the JSON key "{key}" instead.', f'Make it {{"{key}": ...}}.'),
        write=_in_json(key),
    )  # fmt: skip


def _opening(phrase: str) -> Style:
    return Style(
        family="opening",
        rule=(f"Start whatever you answer with “{phrase}”", f"The first words of an answer are “{phrase}”",
              f"“{phrase}” stands in front of every answer."),
        order=(f"Start with “{phrase}”", f"Your first words are “{phrase}” from here on.",
               f"Put “{phrase}” in front."),
        write=_opened(phrase),
    )  # fmt: skip


def _layout() -> tuple[Style, ...]:
    return (
        Style(
            family="layout",
            rule=("Write answers as lists: a new line and a dash for each sentence.",
                  "Answers are lists: one sentence a line, a dash before it."),
            order=("Give it as a list with dashes, one sentence a line.", "A dash and a new line for each sentence."),
            write=_laid_out(lambda parts: "\n".join(f"- {part}" for part in parts)),
        ),
        Style(
            family="layout",
            rule=("Number the sentences of an answer, one below the other.",
                  "Answers are numbered lists: one sentence a line."),
            order=("Number the sentences, one a line.", "Make it a numbered list, one sentence a line."),
            write=_laid_out(lambda parts: "\n".join(f"{n}. {part}" for n, part in enumerate(parts, 1))),
        ),
        Style(
            family="layout",
            rule=("Leave an empty line between any two sentences of an answer.",
                  "Each sentence is a paragraph, with a blank line before the next."),
            order=("A blank line between the sentences, please.", "Put an empty line after every sentence."),
            write=_laid_out("\n\n".join),
        ),
        Style(
            family="layout",
            rule=("Write answers in one block, without a line break.", "Line breaks are not allowed in your answers."),
            order=("All in one block, without line breaks.", "No line breaks, please."),
            write=_laid_out(" ".join),
        ),
    )  # fmt: skip


_PHRASES = ("Certainly:", "Thank you for asking.", "Our desk replies:", "Good news!", "In short:", "As requested:",
            "Noted.", "Here is what I found:", "Happy to help!", "Quick reply:")  # fmt: skip
_KEYS = ("text", "say", "body", "message", "note", "answer_text")

FAMILIES: tuple[tuple[Style, ...], ...] = (
    _case(),
    tuple(_json(key) for key in _KEYS),
    tuple(_opening(phrase) for phrase in _PHRASES),
    _layout(),
)
"""Styles that exclude one another, by family."""


def draw_style(rng: Random, answer: str) -> tuple[Style, str] | None:
    """A style that changes this answer, and the answer in it; families are equally likely. None where none does."""
    for family in rng.sample(FAMILIES, len(FAMILIES)):
        for style in rng.sample(family, len(family)):
            if (written := style.write(answer)) is not None and written != answer:
                return style, written
    return None


def draw_contest(rng: Random, answer: str) -> tuple[tuple[Style, str], tuple[Style, str]] | None:
    """Two styles of one family in which this answer differs, with the answer in each. None where there are none."""
    for family in rng.sample(FAMILIES, len(FAMILIES)):
        written = [(style, text) for style in rng.sample(family, len(family)) if (text := style.write(answer))]
        for one in written:
            for other in written:
                if len({one[1], other[1], answer}) == 3:
                    return one, other
    return None


OPENINGS = (
    "You are a helpful assistant.", "You help people with their texts and questions.", "You are a careful helper.",
    "You answer whatever people want to know.", "You are an assistant who gets to the point.",
    "People come to you with small tasks. Carry them out well.", "You work through tasks that people send in.",
    "You are a friendly assistant for everyday tasks.",
)  # fmt: skip
"""System messages that ask for nothing in particular."""
