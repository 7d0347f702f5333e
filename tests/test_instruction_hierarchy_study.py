"""The tables of the Instruction Hierarchy study, from results with counts that are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.instruction_hierarchy import tables
from benchmarks.instruction_hierarchy.study import ARMS, REGIMES, SUITES
from benchmarks.recorded import compact, restored

from rolewise.attacks import MAIN_ATTACKS
from rolewise.evaluation import summarise
from rolewise.evaluation.outcomes import CEILING, CLEAN, Outcome, Run
from rolewise.evaluation.statistics import Estimate

N = 20
CHANNELS = ("user", "second_turn", "data", "tool")


def run(suite: str, conditions: Mapping[str, tuple[str, int]], **measured: Any) -> dict[str, Any]:
    """Of each condition (with its domain) the first so many of the samples follow."""
    criteria = {"rules": ("obeyed", "broken"), "over_refusal": ("refused",), "prompt_extraction": ("leaked", "decoded")}
    outcomes = [
        Outcome(
            id=f"s{at:02}", condition=name, domain=domain, output="", messages=[],
            verdicts=dict.fromkeys(criteria.get(suite, ("in_response", "begins_with")), at < count),
            meta={"category": "abc"[at % 2]} if suite == "over_refusal" else {"data_chars": at},
            **(measured if name == CLEAN else {}),
        )
        for name, (domain, count) in conditions.items()
        for at in range(N)
    ]  # fmt: skip
    settings = {"task": {"data": "/some/where/rows.json"}, "model": {}, "generation": {}}
    whole = Run(model="m", label="m", suite=suite, probe=None, settings=settings, versions={}, created="",
                complete=True, expected=len(outcomes), outcomes=outcomes)  # fmt: skip
    return json.loads(json.dumps(compact(whole)))


def injections(suite: str, followed: int) -> dict[str, Any]:
    attacks = dict.fromkeys(MAIN_ATTACKS, ("in_domain", followed))
    return run(suite, {CLEAN: (CLEAN, 0), **attacks, CEILING: (CEILING, 15)}, rouge_l=0.5)


def stored(regime: str, arm: str, *, followed: int, obeyed: int = 4, leaked: int = 10) -> dict[str, Any]:
    return {
        "regime": regime, "arm": arm, "seed": 0, "rows": 100, "seconds": 60.0,
        "training": {"steps": 9, "loss": 1.0, "table_ratio": 0.1 if arm.endswith("ise") else 0.0},
        "runs": {
            "indirect": injections("structured_query", followed),
            "direct": injections("direct_injection", followed),
            "extraction": run("prompt_extraction", {f"query-{at:02}": ("extraction", leaked) for at in (1, 2)}),
            "rules": run("rules", {CLEAN: (CLEAN, 0), **dict.fromkeys(CHANNELS, ("conflict", obeyed)),
                                   CEILING: (CEILING, 16)}),
            "over-refusal": run("over_refusal", {"benign": ("benign", 2)}),
        },
    }  # fmt: skip


def write(folder: Path, *results: dict[str, Any]) -> Any:
    for one in results:
        (folder / f"{one['regime']}-{one['arm']}-0.json").write_text(json.dumps(one))
    return tables.read_results(folder)


def test_a_suite_that_goes_by_kind_is_read_back_to_the_same_figures() -> None:
    record = run("over_refusal", {"benign": ("benign", 5)})
    again = summarise(restored(record, "again"))
    assert again.measures["benign"].average is not None
    assert again.measures["benign"].average.value == 0.75
    assert {kind: one.value for kind, one in again.measures["benign"].kinds.items()} == {"a": 0.7, "b": 0.8}


def test_each_suite_counts_with_its_own_figure_and_the_average_is_over_suites(tmp_path: Path) -> None:
    results = write(
        tmp_path,
        stored("hierarchy", "delimiter", followed=10),
        stored("hierarchy", "delimiter-ise", followed=5, obeyed=0, leaked=4),
    )
    found = tables.overall(results, "hierarchy")
    assert {suite: round(one.value, 6) for suite, one in found["suites"].items()} == {
        "indirect": 0.25, "direct": 0.25, "extraction": 0.3, "rules": 0.2, "over-refusal": 0.0,
    }  # fmt: skip
    assert found["difference"].value == pytest.approx((0.25 + 0.25 + 0.3 + 0.2) / 5)
    assert found["delimiter"].value == pytest.approx((0.5 + 0.5 + 0.5 + 0.6 + 0.9) / 5)
    assert found["difference"].low < found["difference"].value < found["difference"].high
    page = tables.report(results)
    assert "| hierarchy: average over suites | at least +5 | +20.0 [" in page
    assert "| hierarchy: extraction average | at least +10 | +30.0 [" in page
    assert "| plain | | | missing |" in page
    assert "Missing: system-follow/delimiter/0" in page
    assert "| hierarchy, delimiter | 20 | 50.0 [" in page


def test_verdicts_look_at_the_whole_interval(tmp_path: Path) -> None:
    same = [stored("plain", arm, followed=10) for arm in ARMS]
    page = tables.report(write(tmp_path, *same))
    (line,) = (one for one in page.splitlines() if one.startswith("| plain: average over suites"))
    assert "+0.0 [" in line
    assert line.endswith("| cannot be told (the figure falls short) |")
    for low, high, verdict in (
        (0.05, 0.2, "met"),
        (-0.1, 0.049, "not met"),
        (0.0, 0.12, "cannot be told (the figure r"),
    ):
        estimate = Estimate(value=(low + high) / 2, low=low, high=high, n=9)
        assert f"| {verdict}" in tables._line("figure", "at least +5", estimate, 0.05)
    assert set(SUITES) == set(tables.SCORES)
    assert set(REGIMES) == {"plain", "system-follow", "hierarchy"}


@pytest.mark.parametrize("text", ["{", "[]", '{"regime": "plain"}'])
def test_a_damaged_result_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "plain-delimiter-0.json").write_text(text)
    with pytest.raises(ValueError, match=r"plain-delimiter-0\.json is not a result of this study"):
        tables.read_results(tmp_path)
