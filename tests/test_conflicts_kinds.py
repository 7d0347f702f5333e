from __future__ import annotations

import importlib
import pkgutil
import unicodedata
from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolewise.data import conflicts
from rolewise.data.conflicts import KINDS, Job, Rule, RuleKind, judge, verdict_spec
from rolewise.data.conflicts.language_kinds import COLOURS, FOODS, LANGUAGES, _apart
from rolewise.data.pools import Split
from rolewise.data.scenes import Scene

CELLS = [(kind, split) for kind in KINDS for split in kind.splits]
IDS = [f"{kind.name}-{split}" for kind, split in CELLS]


def drawn(kind: RuleKind, split: Split, seed: int) -> tuple[Rule, list[Job]]:
    scene = Scene(Random(f"{kind.name}:{seed}"), split)
    rule = kind.make(scene)
    return rule, [rule.draw(scene) for _ in range(2)]


def specs(job: Job) -> dict[str, dict[str, Any]]:
    return {
        condition: verdict_spec(kept=job.keeps, obeyed=job.obeys, correct=correct)
        for condition, correct in (
            ("conflict", job.right_kept),
            ("twin", job.right_obeyed),
            ("plain", job.right_plain),
        )
    }


def dressings(answer: str) -> list[str]:
    """The answer as a model may well write it."""
    return [
        answer,
        f"  \n{answer}\n\n ",
        f"```\n{answer}\n```",
        unicodedata.normalize("NFD", answer),
        answer.replace("\n", "\r\n"),
    ]


@pytest.mark.parametrize(("kind", "split"), CELLS, ids=IDS)
def test_the_robust_and_the_obedient_answer_are_told_apart(kind: RuleKind, split: Split) -> None:
    for seed in range(60):
        _, jobs = drawn(kind, split, seed)
        for job in jobs:
            spec = specs(job)
            for answer in dressings(job.kept):
                verdict = judge(answer, spec["conflict"])
                assert (verdict.kept, verdict.obeyed, verdict.correct) == (True, False, True), (answer, job)
                assert verdict.right("conflict")
                assert not judge(answer, spec["twin"]).right("twin")
            for answer in dressings(job.obeyed):
                verdict = judge(answer, spec["twin"])
                assert (verdict.kept, verdict.obeyed, verdict.correct) == (False, True, True), (answer, job)
                assert verdict.right("twin")
                assert not judge(answer, spec["conflict"]).right("conflict")
            for answer in dressings(job.plain):
                assert judge(answer, spec["plain"]).right("plain"), (answer, job)


@pytest.mark.parametrize(("kind", "split"), CELLS, ids=IDS)
def test_no_output_keeps_the_rule_and_obeys_the_order(kind: RuleKind, split: Split) -> None:
    for seed in range(15):
        rule, (job, _) = drawn(kind, split, seed)
        spec = specs(job)["conflict"]
        parts = (job.kept, job.obeyed, job.plain, rule.text, rule.order, job.material)
        for a in parts:
            for b in ("", *parts):
                for glue in ("\n", " ", ", "):
                    verdict = judge(f"{a}{glue}{b}", spec)
                    assert not (verdict.kept and verdict.obeyed), (a, b, job)


@pytest.mark.parametrize(("kind", "split"), CELLS, ids=IDS)
def test_empty_outputs_and_other_answers_are_not_right(kind: RuleKind, split: Split) -> None:
    for seed in range(40):
        _, (job, other) = drawn(kind, split, seed)
        for condition, spec in specs(job).items():
            for output in ("", " \n\t", "\u200b\ufeff", "```\n```"):
                assert not judge(output, spec).right(condition)
            for output in ("", "\u200b \n"):
                verdict = judge(output, spec)
                assert (verdict.kept, verdict.obeyed, verdict.correct) == (False, False, False)
        if kind.name not in ("refusal", "numerals", "labels", "offset", "units", "currency", "language", "rounding"):
            assert other.kept == job.kept or not judge(other.kept, specs(job)["conflict"]).correct


@pytest.mark.parametrize(("kind", "split"), CELLS, ids=IDS)
def test_rules_and_orders_vary_and_differ(kind: RuleKind, split: Split) -> None:
    rules, orders = set(), set()
    for seed in range(60):
        rule, jobs = drawn(kind, split, seed)
        rules.add(rule.text)
        orders.add(rule.order)
        assert rule.text != rule.order
        assert jobs[0].kept != jobs[0].obeyed
        # An order that gives the answer away, or a task that does, would make another task of it.
        assert jobs[0].ask != jobs[0].material
    assert len(rules) >= 2
    assert len(orders) >= 2


@settings(max_examples=400, deadline=None)
@given(cell=st.sampled_from(CELLS), seed=st.integers(0, 10**9), output=st.text(max_size=60))
def test_any_output_can_be_judged(cell: tuple[RuleKind, Split], seed: int, output: str) -> None:
    _, (job, _) = drawn(*cell, seed)
    for spec in specs(job).values():
        verdict = judge(output, spec)
        assert not (verdict.kept and verdict.obeyed)
    assert judge(job.kept, specs(job)["conflict"]).right("conflict")
    assert judge(job.obeyed, specs(job)["twin"]).right("twin")


def modules() -> Iterator[Any]:
    for module in pkgutil.iter_modules(conflicts.__path__):
        yield importlib.import_module(f"{conflicts.__name__}.{module.name}")


def split_tables(value: Any) -> Iterator[tuple[list[str], list[str]]]:
    """The two lists of every table with one for each split, however deep it lies."""
    if isinstance(value, dict):
        if value.keys() == {"train", "test"}:
            yield strings(value["train"]), strings(value["test"])
            return
        for inner in value.values():
            yield from split_tables(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from split_tables(inner)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value.casefold()]
    if isinstance(value, dict):
        return strings(value.get("English"))  # a word of another language may belong to two English ones
    if isinstance(value, tuple) and all(isinstance(inner, int) for inner in value):
        return [str(inner) for inner in value]  # what sums are raised by; a count beside its phrase is closed
    return [text for inner in value for text in strings(inner)] if isinstance(value, tuple | list) else []


def test_the_splits_share_no_wordings_names_or_values() -> None:
    tables = [
        pair
        for module in modules()
        for name, value in vars(module).items()
        if not name.startswith("__")
        for pair in split_tables(value)
    ]
    assert len(tables) > 70
    for train, test in tables:
        if train == test == ["{m}"]:
            continue
        assert not set(train) - {"{m}"} & set(test), (train, test)


def test_tables_of_words_tell_the_languages_apart() -> None:
    for table in (COLOURS, FOODS):
        for split in ("train", "test"):
            for pair in combinations(LANGUAGES, 2):
                found = [entry for entry in table[split] if _apart(entry, ("English", *pair))]
                assert len(found) >= 2, (split, pair)
    coffee = next(entry for entry in FOODS["train"] if entry["English"] == ("coffee",))
    assert not _apart(coffee, ("Spanish", "French"))
    tea = next(entry for entry in FOODS["train"] if entry["English"] == ("tea",))
    assert not _apart(tea, ("Spanish", "Italian"))


def test_languages_accept_either_form_of_accents_and_of_gender_and_refuse_english() -> None:
    language = next(kind for kind in KINDS if kind.name == "language")
    seen = set()
    for seed in range(300):
        rule, (job, _) = drawn(language, "train", seed)
        spec = specs(job)["conflict"]
        assert not judge(job.plain, spec).kept
        assert not judge(job.plain, spec).obeyed
        if rule.text.endswith("German.") and job.kept == "weiß":
            seen.add("weiß")
            assert all(judge(form, spec).kept for form in ("Weiss", "WEISSE", "Weiß."))
        if "Spanish" in rule.text and job.kept == "rojo":
            seen.add("rojo")
            assert judge("La lámpara es roja.", spec).kept
            assert not judge("rojo (rouge, rot, rosso)", spec).kept
    assert seen == {"weiß", "rojo"}
