"""The study's result files: read back as they were written, and refused where they do not belong together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.recorded import compact, restored
from benchmarks.structured_query import tables
from benchmarks.structured_query.estimates import Arm, Study
from benchmarks.structured_query.readings import check_together, read_results

from rolewise.evaluation import summarise
from tests import reporting_runs
from tests.structured_query_results import WEAK, N, Stored, change, compacted, stored, write


def test_what_the_study_writes_is_read_back_to_the_same_figures() -> None:
    run = reporting_runs.run(settings={"task": {"data": "/some/where/rows.json"}, "model": {}, "generation": {}})
    again = restored(json.loads(json.dumps(compact(run))), "again")
    assert again.settings["task"]["data"] == "rows.json"
    for criterion in ("in_response", "begins_with"):
        one, other = summarise(run, criterion), summarise(again, criterion)
        assert (one.robust, one.groups, one.ceiling, one.utility) == (
            other.robust, other.groups, other.ceiling, other.utility
        )  # fmt: skip
    assert {one.id: one.meta["data_chars"] for one in again.outcomes} == {f"s{at}": 10 * at for at in range(1, 5)}


def test_an_option_that_came_later_stood_at_what_was_done_before_it(tmp_path: Path) -> None:
    first, second = stored("clean/delimiter/0"), stored("clean/delimiter-ise/0")
    for name, value in {"turn": "first", "via": "data", "system": None}.items():
        change(second, f"runs.all.settings.task.{name}", value)
    assert len(write(tmp_path / "same", first, second)) == 2
    with pytest.raises(ValueError, match=r"settings \(turn\)"):
        write(tmp_path / "other", first, change(second, "runs.all.settings.task.turn", "second"))


def test_samples_without_an_answer_are_left_out_and_told(tmp_path: Path) -> None:
    one = stored("clean/delimiter/0", WEAK)
    for name in ("in_response", "begins_with"):
        one["runs"]["all"]["conditions"]["naive"][name][-2:] = [None, None]
    results = write(tmp_path, one)
    naive = Study(results=results).figures(Arm("clean", "delimiter"))["naive"]
    assert (naive.estimate.value, naive.n) == (pytest.approx(8 / 18), "18")
    assert "without an answer, by condition: clean/delimiter/0 (naive 2)." in tables.report(results)
    assert "without an answer" not in tables.report(write(tmp_path, stored("clean/delimiter/0", WEAK)))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: stored("clean/delimiter-ise/0", n=8), "the number of test samples is 20 in one and 8 in the other"),
        (lambda: change(stored("clean/delimiter-ise/0"), "config.model", "other"), "the model is 'tiny' in one and"),
        (lambda: change(stored("clean/delimiter-ise/0"), "runs.all.ids", [f"row-{at:02}" for at in range(1, N + 1)]),
         "the test samples is 'row-00' in one and 'row-01' in the other"),
        (lambda: change(stored("clean/delimiter-ise/0"), "runs.all.data_chars", [7] * N), "length of the test samples"),
        (lambda: change(stored("clean/delimiter-ise/0"), "runs.all.settings.data", "4567"), "hash of the test file"),
        (lambda: change(stored("clean/delimiter-ise/0"), "runs.all.settings.task.limit", 20), r"settings \(limit\)"),
        (lambda: change(stored("clean/delimiter-ise/0"), "runs.all.settings.generation.max_tokens", 8), "generation"),
        (lambda: change(stored("clean/delimiter-ise/0"), "rows.naive", 301), r"training rows \(naive\) is 300"),
        (lambda: change(stored("twins/delimiter-ise/0"), "rows.written", 700), "rows before twins is 1000 in one"),
        (lambda: change(stored("clean/delimiter-ise/0"), "config.epochs", 1.0), "the setting epochs is 1.5"),
        (lambda: change(stored("clean/delimiter-ise/0"), "config.batch_size", 4), "the setting batch_size is 8"),
        (lambda: change(stored("clean/delimiter-ise/0"), "config.dtype", "fp32"), "the setting dtype is 'mixed'"),
        (
            lambda: change(stored("clean/delimiter-ise/0"), "runs.all.settings.model.dtype", "bfloat16"),
            "the dtype of the answers is None",
        ),
        (lambda: stored("clean/delimiter-ise/0", probes={"scale-0": compacted({}, n=19, probe="scale-0")}),
         "number of test samples is 20 in one and 19"),
    ],
)  # fmt: skip
def test_what_does_not_belong_together_is_refused(other: Callable[[], Stored], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"cannot stand in one table: .*{said}") as caught:
        write(tmp_path, stored("clean/delimiter/0"), other())
    assert "--results" in str(caught.value)


def test_other_conditions_are_refused_and_tables_differ_only_between_arms_with_one(tmp_path: Path) -> None:
    fewer = stored("clean/delimiter-ise/0")
    del fewer["runs"]["all"]["conditions"]["naive"]
    with pytest.raises(ValueError, match="the conditions of all is 'naive' in one and 'ignore' in the other"):
        write(tmp_path / "conditions", stored("clean/delimiter/0"), fewer)
    bare = change(stored("clean/delimiter/0"), "config.table_lr_multiple", 1.0)
    results = write(tmp_path / "bare", bare, stored("clean/delimiter-ise/0"), stored("twins/delimiter-ise/0"))
    assert len(results) == 3
    check_together([])
    other = change(stored("twins/delimiter-ise/0"), "config.table_lr_multiple", 1.0)
    with pytest.raises(ValueError, match="table_lr_multiple"):
        write(tmp_path / "bare", other)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("{", "Expecting"),
        (json.dumps({"variant": "clean"}), "it lacks 'arm'"),
        (json.dumps([1]), "list indices"),
        (json.dumps(change(stored("clean/delimiter/0"), "config", {"model": "tiny"})), "it lacks 'learning_rate'"),
        (json.dumps(change(stored("clean/delimiter/0"), "training", {"steps": 1})), "it lacks 'loss'"),
        (json.dumps(change(stored("clean/delimiter/0"), "rows", {"written": 1})), "it lacks 'twin'"),
        (json.dumps(change(stored("clean/delimiter/0"), "runs.all.settings.task", {})), "it lacks 'data'"),
        (json.dumps(stored("clean/text/0")), "it holds the run clean/text/0"),
        (json.dumps(change(stored("clean/delimiter/0"), "runs", {"scale-0": compacted({}, probe="scale-0")})),
         "no run 'all'"),
        (json.dumps(stored("clean/delimiter/0", probes={"scale-0": compacted({})})), "'scale-0' was made with"),
        (json.dumps(change(stored("clean/delimiter/0"), "runs.all.data_chars", [1])), "1 values of data_chars for 20"),
        (json.dumps(change(stored("clean/delimiter/0"), "runs.all.conditions.naive.in_response", [2] * N)), "other th"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_is_named(broken: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "clean-delimiter-0.json"
    path.write_text(broken)
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        read_results(tmp_path)
    assert str(path) in str(caught.value)
    assert "benchmarks.structured_query.study" in str(caught.value)
