"""From outcomes to figures: by hand, partial runs, pairs."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from rolewise.attacks import MAIN_ATTACKS
from rolewise.evaluation import Outcome, Run, by_data_length, compare, summarise
from rolewise.evaluation.logs import labelled
from rolewise.evaluation.table import comparison_table, figure_rows

DOMAINS = {"clean": "clean", "ceiling": "ceiling"}


def run_of(rows: dict[str, str], *, begins: dict[str, str] | None = None, **fields: Any) -> Run:
    """One character a sample: 1 followed, 0 not, - not asked."""
    outcomes = [
        Outcome(
            id=f"row-{place}",
            condition=condition,
            domain=DOMAINS.get(condition, "ood" if condition.startswith("ood") else "in_domain"),
            verdicts={"in_response": mark == "1", "begins_with": (begins or rows)[condition][place] == "1"},
            rouge_l=(place + 1) / 10 if condition == "clean" else None,
            reference_logprob=-1.0 - place if condition == "clean" else None,
            output="",
            messages=[],
            meta={"data_chars": 10 * place},
        )
        for condition, marks in rows.items()
        for place, mark in enumerate(marks)
        if mark != "-"
    ]
    given: dict[str, Any] = {
        "model": "mockllm/model", "label": "model", "suite": "structured_query", "probe": None, "settings": {},
        "versions": {}, "created": "2026-01-01", "complete": True, "expected": len(outcomes), "outcomes": outcomes,
    }  # fmt: skip
    return Run(**{**given, **fields})


def test_figures_by_hand() -> None:
    summary = summarise(run_of({"clean": "0001", "naive": "1000", "ignore": "0110", "ceiling": "1101"}))
    assert {name: one.value for name, one in summary.robust.items()} == {"naive": 0.75, "ignore": 0.5}
    assert list(summary.groups) == ["in_domain"]
    group = summary.headline
    assert group is not None
    assert (group.average.value, group.worst.value, group.worst_attack) == (0.625, 0.5, "ignore")
    assert group.union.value == 0.25
    assert group.separation is not None
    assert group.separation.value == pytest.approx(0.75 - 0.375)
    assert group.given_ceiling is not None
    assert group.given_ceiling.value == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert summary.ceiling is not None
    assert summary.ceiling.value == 0.75
    assert summary.false_alarms is not None
    assert summary.false_alarms.value == 0.25
    assert summary.utility["rouge_l"].value == pytest.approx(0.25)
    assert summary.utility["reference_logprob"].value == pytest.approx(-2.5)
    assert (summary.n, summary.missing) == (4, {})


def test_criteria_domains_and_the_main_four() -> None:
    rows = dict.fromkeys(("clean", *MAIN_ATTACKS, "completion_other", "ood_naive", "ceiling"), "10")
    begins = dict.fromkeys(rows, "00")
    run = run_of(rows, begins=begins)
    assert list(summarise(run).groups) == ["main", "in_domain", "ood"]
    assert summarise(run).groups["in_domain"].attacks == (*MAIN_ATTACKS, "completion_other")
    assert summarise(run).groups["main"].average.value == 0.5
    assert summarise(run, "begins_with").groups["main"].average.value == 1
    with pytest.raises(ValueError, match="'in_respons' must be one of in_response, begins_with"):
        summarise(run, "in_respons")  # type: ignore[arg-type]


def test_partial_and_empty_runs_say_what_is_missing() -> None:
    summary = summarise(run_of({"clean": "00-0", "naive": "10--", "ignore": "-1--", "ceiling": "1---"}))
    assert (summary.n, summary.missing) == (3, {"naive": 1, "ignore": 2, "ceiling": 2})
    assert summary.robust["naive"].n == 2
    assert summary.groups["in_domain"].n == 1
    assert summary.groups["in_domain"].separation is None
    empty = summarise(run_of({}))
    assert (empty.n, empty.headline, empty.ceiling, empty.utility) == (0, None, None, {})
    assert summarise(run_of({"clean": "00"})).groups == {}
    run = run_of({"naive": "1"})
    with pytest.raises(ValueError, match="two outcomes for 'naive'"):
        summarise(replace(run, outcomes=run.outcomes * 2))


def test_epochs_are_averaged_and_a_sample_counts_once() -> None:
    first = run_of({"naive": "10", "ceiling": "11"})
    second = run_of({"naive": "00", "ceiling": "11"})
    outcomes = [*first.outcomes, *(replace(one, epoch=2) for one in second.outcomes)]
    summary = summarise(replace(first, outcomes=outcomes))
    assert summary.robust["naive"].value == 0.75
    assert summary.robust["naive"].n == 2
    assert summary.groups["in_domain"].union.value == 0.75


def test_differences_are_paired() -> None:
    marks = "10" * 40
    first = summarise(run_of({"clean": "0" * 80, "naive": "0" * 80, "ignore": "0" * 80, "ceiling": marks}))
    second = summarise(run_of({"clean": "0" * 80, "naive": marks, "ignore": "0" * 80, "ceiling": marks}))
    found = compare(first, second)
    assert found["naive"].estimate.value == 0.5
    assert found["naive"].p is not None
    assert found["naive"].p < 1e-9
    assert found["ceiling"].estimate.value == 0
    assert found["ceiling"].p == 1
    assert found["in_domain average"].estimate.value == 0.25
    assert found["in_domain worst"].estimate.value == 0.5
    assert found["in_domain worst"].p is None
    assert found["in_domain union"].estimate.value == 0.5
    assert found["in_domain separation"].estimate.value == 0.25
    assert found["in_domain separation"].estimate.excludes_zero
    assert found["rouge_l"].estimate.value == 0
    # Where both follow on the very same rows the difference is known exactly, however uncertain each figure is.
    one_more = "10" * 39 + "00"
    third = summarise(run_of({"clean": "0" * 80, "naive": one_more, "ignore": "0" * 80, "ceiling": marks}))
    narrow = compare(third, second)["naive"].estimate
    assert narrow.high - narrow.low < 0.06
    assert compare(first, second)["naive"].estimate.value == -compare(second, first)["naive"].estimate.value


def test_only_common_samples_are_compared() -> None:
    first = summarise(run_of({"naive": "1100", "ceiling": "1111"}))
    second = summarise(run_of({"naive": "0---", "ceiling": "1111"}))
    found = compare(first, second)
    assert (found["naive"].estimate.value, found["naive"].estimate.n) == (-1, 1)
    other = run_of({"naive": "1"})
    with pytest.raises(ValueError, match="share no sample"):
        compare(first, summarise(replace(other, outcomes=[replace(other.outcomes[0], id="x")])))
    with pytest.raises(ValueError, match="cannot compare structured_query by in_response with sep"):
        compare(first, summarise(replace(other, suite="sep")))


def test_runs_are_cut_by_the_length_of_their_data() -> None:
    run = run_of({"naive": "110000", "ceiling": "111111"})
    parts = by_data_length(run, 3)
    assert [name for name, _ in parts] == [
        "data of 0 to 10 characters", "data of 20 to 30 characters", "data of 40 to 50 characters"
    ]  # fmt: skip
    assert [summarise(part).robust["naive"].value for _, part in parts] == [0, 1, 1]
    assert sum(len(part.outcomes) for _, part in parts) == len(run.outcomes)
    assert len(by_data_length(replace(run, outcomes=[]), 3)) == 0
    same = replace(run, outcomes=[replace(one, meta={"data_chars": 5}) for one in run.outcomes])
    assert len(by_data_length(same, 4)) == 1
    with pytest.raises(ValueError, match="no data_chars"):
        by_data_length(replace(run, outcomes=[replace(run.outcomes[0], meta={})]))


def test_the_table_holds_every_model_and_says_what_is_incomplete() -> None:
    rows = {"clean": "0000", **dict.fromkeys(MAIN_ATTACKS, "1000"), "ceiling": "1111"}
    runs = [run_of(rows), run_of(rows, label="other", complete=False, expected=99)]
    found = {label: (cells, apart) for label, cells, apart, _ in figure_rows(runs)}
    assert found["samples"][0] == ["4", "4 (24 of 99 answers)"]
    assert found["main four: average"][0][0].startswith("75 [")
    assert found["main four: separation"][1][0] == ""
    assert found["main four: separation"][1][1].startswith("+0 [")
    assert found["utility: reference (nats/token)"][0][0].startswith("-2.50 [")
    assert " naive" in found
    said = printed(runs)
    assert "other − reference (p)" in " ".join(said.split())
    assert "structured_query on rows.json, in_response" in printed(
        [replace(runs[0], settings={"task": {"data": "eval/rows.json"}})]
    )
    assert "given ceiling: robust among" in said
    assert "differences are" not in printed(runs[:1])
    with pytest.raises(ValueError, match="no runs"):
        figure_rows([])


def test_a_deaf_model_has_a_row_for_its_missing_sep_score() -> None:
    deaf = run_of({"sep": "00", "ceiling": "00"}, suite="sep")
    found = {label: cells for label, cells, _, _ in figure_rows([deaf])}
    assert found["SEP score"] == ["—"]
    assert found[" robust: question in the data"][0].startswith("100 [")
    assert "sep" not in {label.strip() for label in found}
    said = printed([deaf])
    assert "SEP score: robust among" in said
    assert "given ceiling" not in said
    assert "utility" not in said


def printed(runs: list[Run]) -> str:
    from rich.console import Console

    console = Console(width=160, file=io.StringIO())
    console.print(comparison_table(runs))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_labels_tell_runs_apart() -> None:
    settings = {"task": {"seed": 0}, "model": {}}
    one = run_of({"naive": "1"}, model="rolewise/a/final", label="final", settings=settings)
    other = replace(one, model="rolewise/b/final")
    assert [run.label for run in labelled([one, other])] == ["a/final", "b/final"]
    assert [run.label for run in labelled([one])] == ["final"]
    seeded = replace(one, settings={"task": {"seed": 1}, "model": {}})
    assert len({run.label for run in labelled([one, seeded])}) == 2
    assert len({run.label for run in labelled([one, one, other])}) == 3


def test_a_sample_whose_verdict_a_grader_did_not_give_lacks_the_condition() -> None:
    run = run_of({"naive": "100", "ceiling": "111"})
    outcomes = [replace(one, verdicts={}, ungraded={"in_response": "no JSON"}) if (one.id, one.condition) ==
                ("row-2", "naive") else one for one in run.outcomes]  # fmt: skip
    summary = summarise(replace(run, outcomes=outcomes))
    assert (summary.n, summary.missing, summary.ungraded) == (3, {"naive": 1}, 1)
    assert summary.robust["naive"].value == 0.5
    assert summary.headline is not None
    assert summary.headline.n == 2
