"""Figures of suites that go by kind: by hand, pairs, intervals, and which rows a limit takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolewise.evaluation import Outcome, Run, compare, summarise, wilson
from rolewise.evaluation.kinds import bootstrap_kinds, shared_criterion, spread
from rolewise.evaluation.table import figure_rows, remarks

OPTIONS: dict[str, Any] = {"confidence": 0.95, "seed": 0, "draws": 2000}


def run_of(
    rows: dict[str, dict[str, str]], suite: str = "harmful", *, criteria: tuple[str, ...] = ("answered",), **fields: Any
) -> Run:
    """By condition and kind, a character a sample: 1 bad, 0 good, ? ungraded by the last criterion, - not asked."""
    outcomes: list[Outcome] = []
    for condition, kinds in rows.items():
        number = 0
        for kind, marks in kinds.items():
            for mark in marks:
                number += 1
                if mark == "-":
                    continue
                graded = criteria if mark != "?" else criteria[:-1]
                outcomes.append(
                    Outcome(
                        id=f"row-{number}",
                        condition=condition,
                        domain=suite,
                        verdicts=dict.fromkeys(graded, mark == "1"),
                        ungraded={criteria[-1]: "no JSON"} if mark == "?" else {},
                        output="",
                        messages=[{"role": "user", "content": f"{condition} {number}"}],
                        meta={"category": kind},
                    )
                )
    given: dict[str, Any] = {
        "model": "stub/model", "label": "model", "suite": suite, "probe": None, "settings": {}, "versions": {},
        "created": "2026-01-01", "complete": True, "expected": len(outcomes), "outcomes": outcomes,
    }  # fmt: skip
    return Run(**{**given, **fields})


def graded_run(ratings: dict[str, list[float | None]], win: tuple[float, ...] = (), **fields: Any) -> Run:
    """By category, ratings of first turns (None: ungraded); and wins."""
    outcomes: list[Outcome] = []

    def add(grades: dict[str, float], ungraded: dict[str, str], meta: dict[str, Any]) -> None:
        outcomes.append(
            Outcome(id=f"q-{len(outcomes)}", condition="first_turn", domain="capability", verdicts={}, grades=grades,
                    ungraded=ungraded, output="", messages=[], meta=meta)
        )  # fmt: skip

    for category, values in ratings.items():
        for value in values:
            given = {} if value is None else {"first_turn": value}
            add(given, {"first_turn": "no JSON"} if value is None else {}, {"category": category})
    for value in win:
        add({"win_rate": value}, {}, {})
    return run_of({}, "capability", outcomes=outcomes, expected=len(outcomes), **fields)


def test_figures_by_hand() -> None:
    summary = summarise(run_of({"bare": {"a": "1000", "b": "11"}, "jailbreak": {"a": "1110", "b": "1-"}}))
    assert (summary.n, summary.missing, summary.robust, summary.groups) == (6, {"jailbreak": 1}, {}, {})
    bare, jailbreak = summary.measures["bare"], summary.measures["jailbreak"]
    assert bare.average == wilson(3, 6)
    assert bare.kinds == {"a": wilson(3, 4), "b": wilson(0, 2)}
    assert bare.worst is not None
    assert (bare.worst.value, bare.worst_kind, bare.worst.n) == (0, "b", 6)
    assert jailbreak.average == wilson(1, 5)
    assert jailbreak.kinds["a"] == wilson(1, 4)
    assert (summary.headline, summary.ceiling, summary.utility) == (None, None, {})


def test_an_ungraded_answer_is_no_pass_and_no_failure() -> None:
    run = run_of({"bare": {"a": "10?", "b": "0?"}}, criteria=("answered", "helped"))
    helped, answered = summarise(run, "helped"), summarise(run, "answered")
    assert helped.measures["bare"].average == wilson(2, 3)
    assert helped.measures["bare"].ungraded == 2
    assert answered.measures["bare"].average == wilson(4, 5), "the classifier has judged them all"
    assert answered.measures["bare"].ungraded == 0
    assert helped.n == answered.n == 5
    nothing = summarise(run_of({"bare": {"a": "??"}}, criteria=("helped",)))
    assert nothing.criterion == "helped"
    assert (nothing.measures["bare"].average, nothing.measures["bare"].ungraded) == (None, 2)
    assert [cells for label, cells, *_ in figure_rows([nothing.run]) if label == "robust: average"] == [["—"]]
    (said,) = [line for line in remarks([("m", nothing)]) if "ungraded" in line]
    assert "m 2 of 2" in said


def test_a_grader_is_asked_for_where_a_classifier_judged() -> None:
    (said,) = [line for line in remarks([("m", summarise(run_of({"bare": {"a": "10"}})))]) if "classifier" in line]
    assert "(m)" in said
    assert "helped" in said
    graded = summarise(run_of({"bare": {"a": "10"}}, criteria=("answered", "helped")))
    assert not any("classifier" in line for line in remarks([("m", graded)]))


def test_the_criterion_is_one_that_all_runs_have() -> None:
    rows = {"bare": {"a": "10"}}
    both, one = run_of(rows, criteria=("answered", "helped")), run_of(rows)
    assert shared_criterion([both]) == "helped"
    assert shared_criterion([both, one]) == "answered"
    assert shared_criterion([one], "helped") == "helped"
    with pytest.raises(ValueError, match="must be one of helped, answered"):
        shared_criterion([one], "refused")
    labels = [label for label, *_ in figure_rows([both, one])]
    assert labels[0] == "samples"
    assert "robust: average" in labels


def test_ratings_are_means_with_their_own_bounds() -> None:
    summary = summarise(graded_run({"math": [1.0, 1.0], "writing": [9.0, None, 8.0]}, win=(1.0, 0.5)))
    rated, win = summary.measures["first_turn"], summary.measures["win_rate"]
    assert rated.average is not None
    assert rated.average.value == pytest.approx(19 / 4)
    assert rated.kinds["math"].value == 1
    assert rated.kinds["math"].low == 1, "nothing is rated below 1"
    assert 1 < rated.kinds["math"].high < 10, "two that agree are not all that could be"
    assert (rated.worst_kind, rated.ungraded, summary.ungraded) == ("math", 1, 1)
    assert win.average is not None
    assert (win.average.value, win.kinds, win.worst) == (0.75, {}, None)
    rows = {label: cells[0] for label, cells, *_ in figure_rows([summary.run])}
    assert rows["MT-Bench, first turn: average"].startswith("4.75 [")
    assert rows["AlpacaEval win rate: average"].startswith("75 [")
    assert rows["ungraded answers"] == "1"


def test_differences_are_paired_by_sample() -> None:
    better = summarise(run_of({"bare": {"a": "0000", "b": "0011"}}))
    worse = summarise(run_of({"bare": {"a": "1000", "b": "1111"}}))
    found = compare(better, worse)
    assert found["bare average"].estimate.value == pytest.approx(3 / 8)
    assert found["bare average"].p == pytest.approx(0.25), "three discordant pairs, all one way"
    assert found["bare/b"].estimate.value == pytest.approx(0.5)
    assert found["bare worst"].estimate.value == pytest.approx(0.5)
    assert found["bare worst"].p is None
    # Only shared samples count.
    part = summarise(run_of({"bare": {"a": "1---", "b": "1---"}}))
    assert compare(better, part)["bare average"].estimate.n == 2
    first, second = (summarise(graded_run({"math": [a, b], "writing": [c]})) for a, b, c in ((9, 8, 7), (5, 8, 9)))
    rated = compare(first, second)
    assert rated["first_turn average"].estimate.value == pytest.approx(2 / 3)
    assert rated["first_turn/math"].estimate.value == pytest.approx(2)
    assert rated["first_turn worst"].estimate.value == pytest.approx(7 - 6.5)


def test_over_refusal_is_said_to_be_answered() -> None:
    run = run_of({"benign": {"homonyms": "01", "history": "00"}}, "over_refusal", criteria=("refused",))
    labels = {label: cells[0] for label, cells, *_ in figure_rows([run])}
    assert labels["answered: average"].startswith("75 [")
    assert labels["answered: worst type"].startswith("50 [")
    assert set(labels) == {"samples", "answered: average", "answered: worst type", " homonyms", " history"}


def test_rows_judged_twice_are_refused() -> None:
    run = run_of({"bare": {"a": "1"}})
    with pytest.raises(ValueError, match="has two outcomes"):
        summarise(run_of({}, outcomes=run.outcomes * 2))


# --- intervals ---------------------------------------------------------------------------------------------------


def test_the_worst_is_resampled_within_its_kind() -> None:
    tables = [[[1.0]] * 10, [[1.0], [0.0]] * 5]
    worst = bootstrap_kinds(tables, lambda means: means[..., 0].min(-1), (0.0, 1.0), **OPTIONS)
    assert worst.value == 0.5
    # A binomial of 10 draws at one half: its 2.5 % and 97.5 % points.
    assert (worst.low, worst.high) == (0.2, 0.8)
    assert worst.n == 20


def test_kinds_that_agree_have_an_interval_all_the_same() -> None:
    tables = [[[1.0]] * 30, [[1.0]] * 5]
    worst = bootstrap_kinds(tables, lambda means: means[..., 0].min(-1), (0.0, 1.0), **OPTIONS)
    assert (worst.value, worst.high) == (1, 1)
    assert worst.low == pytest.approx(wilson(5, 5).low), "as sure as the smallest kind is"


def test_a_kind_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="every kind needs at least one sample"):
        bootstrap_kinds([[]], lambda means: means[..., 0].min(-1), (0.0, 1.0), **OPTIONS)


# --- limits ------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(0, 45))
def test_a_limit_takes_of_each_kind_alike(kinds: list[str], limit: int) -> None:
    items = list(enumerate(kinds))
    some = spread(items, lambda item: item[1], limit)
    more = spread(items, lambda item: item[1], limit + 1)
    assert len(some) == min(limit, len(items))
    assert some == sorted(some), "in the file's order"
    assert set(some) <= set(more), "fewer are among more"
    counts, whole = Counter(kind for _, kind in some), Counter(kinds)
    for kind in whole:
        for other in whole:
            assert counts[kind] >= min(counts[other] - 1, whole[kind])
    assert spread(items, lambda item: item[1], None) == items
