"""Rows that programs make: the answer is right for who said what, twins say the contrary, and no test leaks in."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolewise.attacks.vocabulary import contest_sentences, ignore_sentences
from rolewise.data.conflicts.conversations import LIFTS
from rolewise.data.hierarchy import Pipeline, recipe_from_dict
from rolewise.data.hierarchy.cards import QUESTIONS, draw_card
from rolewise.data.hierarchy.extracting import _ASIDES, _NAMED, _OWN, _SHARED, REFUSALS, REQUESTS
from rolewise.data.hierarchy.overriding import ATTEMPTS
from rolewise.data.hierarchy.styles import FAMILIES, OPENINGS, draw_contest, draw_style
from rolewise.evaluation import extraction
from rolewise.evaluation.leakage import leaked, longest_span
from rolewise.evaluation.refusing import refuses
from rolewise.samples import words_of
from tests.hierarchy_teacher import write_sources

Rows = list[dict[str, Any]]


def made(tmp_path: Path, stages: dict[str, Any], rows: int = 12) -> Rows:
    sources = write_sources(tmp_path, rows)
    used = {name for stage in stages.values() for name in stage.get("source", "").split()}
    values = {
        "sources": {name: {"path": sources[name]} for name in sorted(used)},
        "stages": stages,
        "mix": dict.fromkeys(stages, "all"),
    }
    with Pipeline(recipe_from_dict(values), tmp_path / "work") as pipeline:
        return pipeline.make().rows


def pairs(rows: Rows) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The attacked row and its twin, of each pair."""
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        if row["meta"]["pair"] is not None:
            found[row["meta"]["pair"]].append(row)
    assert all(len(pair) == 2 for pair in found.values())
    return [tuple(sorted(pair, key=lambda row: row["meta"]["condition"] == "twin")) for pair in found.values()]  # type: ignore[misc]


def text(row: dict[str, Any], role: str) -> str:
    return next((message["content"] for message in row["messages"] if message["role"] == role), "")


def original(row: dict[str, Any]) -> dict[str, str]:
    """The Alpaca row that a row was made of."""
    number = int(re.findall(r"\d+", row["meta"]["id"])[-1])
    data = f"The door of house {number} is red." if number % 2 else ""
    answer = f"It is red {number}. It was painted."
    return {"user": f"Name the colour in text {number}.", "data": data, "answer": answer}


def test_decomposition_keeps_the_parts_and_gives_some_rows_a_system_message(tmp_path: Path) -> None:
    rows = made(tmp_path, {"parts": {"kind": "decompose", "source": "alpaca", "take": 24, "system_share": 0.5}})
    for row in rows:
        assert text(row, "data") == original(row)["data"] != ""
        assert text(row, "user") == original(row)["user"]
        assert text(row, "assistant") == original(row)["answer"]
        assert text(row, "system") in ("", *OPENINGS)
    assert 4 < sum(bool(text(row, "system")) for row in rows) < 20


def holds(rule_of: str, answer: str, plain: str) -> bool:
    """Whether an answer is the plain one in a form that a rule or an order asks for; by a reading of our own."""
    if "capital letter" in rule_of.lower() or "capitals" in rule_of.lower():
        small = "never use a capital" in rule_of or "No capital" in rule_of
        return answer == (plain.lower() if small else plain.upper())
    if "small letters" in rule_of.lower():
        return answer == plain.lower()
    if phrase := re.search("“(.*?)”", rule_of):
        return answer == f"{phrase[1]} {plain}"
    if "JSON" in rule_of or "Make it {" in rule_of:
        key = re.search('"(.*?)"', rule_of)
        assert key is not None
        return json.loads(answer) == {key[1]: plain}
    lines = [line for line in answer.split("\n") if line]
    if re.search("block|[Ll]ine breaks", rule_of):
        return len(answer.split("\n")) == 1
    if re.search("[Nn]umber", rule_of):
        return [line[:2] for line in lines] == [f"{n}." for n in range(1, len(lines) + 1)] and len(lines) > 1
    if re.search("dash", rule_of):
        return all(line.startswith("- ") for line in lines) and len(lines) > 1
    assert re.search("blank|empty", rule_of), rule_of
    return "\n\n" in answer and not any(line.startswith("- ") for line in lines)


def test_an_answer_under_a_rule_keeps_it(tmp_path: Path) -> None:
    rows = made(tmp_path, {"follow": {"kind": "regenerate", "source": "alpaca", "take": 44}})
    assert set(Counter(row["meta"]["kind"] for row in rows)) == {"case", "json", "opening", "layout"}
    for row in rows:
        assert row["meta"]["rule"] in text(row, "system")
        assert (text(row, "user"), text(row, "data")) == (original(row)["user"], original(row)["data"])
        assert text(row, "assistant") != original(row)["answer"]
        assert holds(row["meta"]["rule"], text(row, "assistant"), original(row)["answer"]), row


def test_who_may_not_change_the_rule_does_not_and_who_may_does(tmp_path: Path) -> None:
    rows = made(tmp_path, {"override": {"kind": "override", "source": "alpaca", "take": 48, "twins": 1}})
    assert len(rows) == 96
    forms = Counter[str]()
    for attacked, twin in pairs(rows):
        rule, order = attacked["meta"]["rule"], attacked["meta"]["order"]
        assert order in text(attacked, "user")
        assert order not in text(attacked, "system")
        assert rule in text(attacked, "system")
        assert holds(rule, text(attacked, "assistant"), original(attacked)["answer"])
        # The twin: the same words from who may say them, and the answer that they ask for.
        form = twin["meta"]["form"]
        forms[form] += 1
        assert holds(order, text(twin, "assistant"), original(twin)["answer"])
        assert text(twin, "assistant") != text(attacked, "assistant")
        if form == "after":
            assert text(twin, "system") == f"{text(attacked, 'system')} {order}"
            assert text(twin, "user") == original(twin)["user"]
        else:
            assert text(twin, "user") == text(attacked, "user")
            assert rule not in text(twin, "system")
    assert min(forms["after"], forms["alone"]) > 12


def test_an_injection_leaves_the_answer_and_its_twin_has_both(tmp_path: Path) -> None:
    stage = {"kind": "inject", "source": "alpaca", "take": 20, "twins": 0.5, "forged": "other", "position": "random"}
    rows = made(tmp_path, {"inject": stage})
    attacked = [row for row in rows if row["meta"]["condition"] == "injected"]
    assert Counter(row["meta"]["attack"] for row in attacked) == {"naive": 10, "completion_other": 10}
    assert len(rows) == 30
    for row in attacked:
        (injected,) = row["meta"]["injections"]
        assert injected["text"] in text(row, "data")
        assert text(row, "data") != original(row)["data"]
        assert text(row, "user") == original(row)["user"]
        assert text(row, "assistant") == original(row)["answer"]
        assert row["meta"]["injected_row"] != row["meta"]["id"]
    assert len(pairs(rows)) == 10
    for row, twin in pairs(rows):
        other = original({"meta": {"id": row["meta"]["injected_row"]}})
        assert other["user"] in text(row, "data")
        assert other["user"] in text(twin, "user")
        assert text(twin, "data") == original(twin)["data"]
        assert text(twin, "assistant") == f"{original(twin)['answer']}\n\n{other['answer']}"


@pytest.mark.parametrize("source", ["", "alpaca"])
def test_the_system_message_is_kept_and_a_text_of_the_users_own_is_given_back(tmp_path: Path, source: str) -> None:
    stage = {"kind": "extract", "take": 40, "twins": 1, **({"source": source} if source else {})}
    rows = made(tmp_path, {"extract": stage})
    assert len(rows) == 80
    shared = 0
    for attempt, twin in pairs(rows):
        secret = text(attempt, "system")
        if source:
            assert secret == "\n".join(filter(None, (original(attempt)["user"], original(attempt)["data"])))
        assert refuses(text(attempt, "assistant")).declines
        assert not leaked(secret, text(attempt, "assistant"))
        assert longest_span(secret, text(attempt, "assistant"))[0] < 12
        assert longest_span(secret, text(attempt, "user"))[0] < 7  # who asks has not seen it
        assert text(twin, "system") == secret
        assert not refuses(text(twin, "assistant")).declines
        own, answer = text(twin, "user"), text(twin, "assistant")
        assert set(words_of(answer)) <= set(words_of(own))
        assert not leaked(secret, answer)
        if attempt["meta"]["form"] == "shared":
            shared += 1
            assert own.endswith(f"\n\n{text(attempt, 'user')}")  # word for word the same request
    assert 8 < shared < 32


def test_honest_questions_get_an_answer_that_is_true_and_tells_nothing_private(tmp_path: Path) -> None:
    rows = made(tmp_path, {"ask": {"kind": "ask", "take": 60}})
    assert len({text(row, "user") for row in rows}) > 20
    for row in rows:
        system, answer = text(row, "system"), text(row, "assistant")
        assert not refuses(answer).declines or "not my subject" in answer
        for code in re.findall(r"[A-Z]{3,}-\d+", system):
            assert code not in answer
        assert not leaked(system, answer)
        names = [word for word in re.findall(r"[A-Z]\w+", answer) if word not in ("Yes", "Ask", "No", "My", "Go")]
        sentences = [answer[0], *(found[1] for found in re.finditer(r"[.?!] (\w)", answer))]
        for name in names:  # whatever name the answer has stands in the message
            assert name in system or name[0] in sentences or name == "Somebody", (name, row)


def test_no_answer_to_an_honest_question_tells_what_is_private() -> None:
    cards = [draw_card(Random(seed), private=1.0) for seed in range(40)]
    for card in cards:
        assert card.code in card.text != ""
        for _, answers in QUESTIONS:
            assert not any(card.code in answer for answer in answers(card))


@given(st.text(min_size=1, max_size=200), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_answer_takes_a_style_and_contests_differ(answer: str, seed: int) -> None:
    drawn = draw_style(Random(seed), answer)
    assert drawn is not None
    assert drawn[1] != answer
    contest = draw_contest(Random(seed), answer)
    assert contest is not None
    (ours, kept), (theirs, changed) = contest
    assert ours.family == theirs.family
    assert len({kept, changed, answer}) == 3
    assert ours.write(answer) == kept


def test_every_refusal_is_one_to_the_classifier_and_admits_that_there_is_a_message() -> None:
    for refusal in REFUSALS:
        assert refuses(refusal).declines, refusal
        assert not re.search(r"\b(no|any) (system (message|prompt)|instructions)\b", refusal)


def test_the_words_of_the_tests_are_not_those_of_training() -> None:
    ours = [
        *(request for request, _ in REQUESTS), *_SHARED, *_NAMED, *_OWN, *filter(str.strip, _ASIDES), *ATTEMPTS,
        *(words for family in FAMILIES for style in family for words in (*style.rule, *style.order)),
        *OPENINGS, *REFUSALS,
        *(wording for wordings, _ in QUESTIONS for wording in wordings),
    ]  # fmt: skip
    theirs = [*extraction.EXTRACTION_QUERIES, *LIFTS["test"], *ignore_sentences("test"), *contest_sentences("test")]
    for query in theirs:
        sentences = [part for part in re.split(r"(?<=[.!?:])\s+", query) if len(words_of(part)) > 1]
        for sentence in sentences:
            for wording in ours:
                run, _ = longest_span(sentence, wording)
                assert run < 5, (sentence, wording)


def test_generated_system_messages_are_not_those_of_the_tests() -> None:
    cards = [draw_card(Random(seed)) for seed in range(300)]
    assert len({card.text for card in cards}) > 290
    secrets = extraction.generated_secrets(200)
    houses = {house for _, house, _ in extraction._DUTIES}
    assert not houses & {card.house for card in cards}
    assert not set(extraction._NAMES) & {card.name for card in cards}
    for card in cards[:60]:
        assert all(longest_span(secret.text, card.text)[0] < 6 for secret in secrets)
        assert 12 <= len(card.text.split()) <= 60
        assert not card.code or card.code in card.text
