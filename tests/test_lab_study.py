"""The lab's command, and its study: order, budget, resuming, figures."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.lab import figures, study

from rolewise.cli import main
from rolewise.commands.lab import LabOptions, configs_for
from rolewise.lab import ARMS, LabConfig, LabResult, ResultFile
from rolewise.lab.report import label_of, setting_of
from tests.lab_runs import TINY, result_of

QUICK = ["--base-steps", "2", "--steps", "2", "--samples", "4"]


class Inline(Executor):
    """Does each job at once, as one worker would."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


# --- study -------------------------------------------------------------------------------------------------------


def test_the_plan_starts_with_what_is_most_wanted_and_names_each_run_once() -> None:
    configs = study.plan(5)
    assert len(configs) == len(set(configs))
    assert [(config.seed, config.arm) for config in configs[:20]] == [(seed, arm) for seed in range(5) for arm in ARMS]
    assert all(replace(config, arm="text", seed=0) == LabConfig(arm="text") for config in configs[:20])
    assert {config.lr_multiple for config in configs} == {1.0, 10.0, 50.0, 100.0}
    assert len({config.seed for config in configs}) == 5


def test_a_killed_study_goes_on_and_loses_one_run_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lab.jsonl"
    configs = [replace(TINY, seed=seed, arm=arm) for seed in range(2) for arm in ARMS]
    done: list[LabConfig] = []
    prepared: list[int] = []

    def prepare(config: LabConfig) -> LabConfig:
        prepared.append(config.seed)
        return config

    def perform(config: LabConfig) -> LabResult:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(config)
        return result_of(config)

    monkeypatch.setattr(study, "prepare", prepare)
    monkeypatch.setattr(study, "perform", perform)
    with pytest.raises(KeyboardInterrupt):
        study.study(configs, ResultFile(path), study.Clock(1.0), Inline(), 1, lambda _: None)
    assert [result.config for result in ResultFile(path).results] == configs[:3]

    again: list[LabConfig] = []
    monkeypatch.setattr(study, "perform", lambda config: again.append(config) or result_of(config))
    study.study(configs, ResultFile(path), study.Clock(1.0), Inline(), 1, lambda _: None)
    assert again == configs[3:]
    assert [result.config for result in ResultFile(path).results] == configs
    study.study(configs, ResultFile(path), study.Clock(1.0), Inline(), 1, lambda _: None)
    assert len(ResultFile(path).results) == len(configs)


def test_no_run_starts_that_would_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [replace(TINY, arm=arm) for arm in ARMS]
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(study, "prepare", lambda config: config)

    def perform(config: LabConfig) -> LabResult:
        now[0] += 1000.0
        return result_of(config)

    monkeypatch.setattr(study, "perform", perform)
    clock = study.Clock(2500 / 3600)
    file = ResultFile(tmp_path / "lab.jsonl")
    # `study` notes the start of a job after an inline worker has done it, so tell the clock ourselves.
    clock.took(1000.0)
    study.study(configs, file, clock, Inline(), 1, lambda _: None)
    assert len(file.results) == 2


# --- figures -----------------------------------------------------------------------------------------------------


def study_results() -> list[LabResult]:
    """Delimiter+ISE separates better by 3/8 in seed 0 and by 4/8 in seed 1."""
    followed = {"delimiter": (4, 4), "delimiter+ISE": (1, 0), "text": (2, 2), "text+ISE": (2, 2)}
    return [result_of(LabConfig(arm=arm, seed=seed), followed=followed[arm][seed]) for arm in ARMS for seed in (0, 1)]


def test_points_are_means_over_seeds_and_differences_are_paired() -> None:
    results = study_results()
    (length,) = [axis for axis in figures.axes() if axis.name == "length"]
    ise = figures.curve(length, "delimiter+ISE", results)[2]
    assert ise is not None
    assert ise.value == pytest.approx((6 / 8 + 7 / 8) / 2)
    gain = figures.difference(length.points[2], "delimiter+ISE", "delimiter", results)
    assert gain is not None
    assert gain.value == pytest.approx((3 / 8 + 4 / 8) / 2)
    assert gain.high - gain.value == pytest.approx(12.706 * (1 / 16))
    assert figures.difference(length.points[2], "delimiter+ISE", "delimiter", results[-1:]) is None
    assert figures.over_seeds([0.5]).n == 1
    assert figures._cell(figures.over_seeds([0.1, 0.2, 0.3]), True) == "+20 [-5, +45]"
    with pytest.raises(ValueError, match="no seeds"):
        figures.over_seeds([])


def test_figures_and_tables_come_from_the_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ResultFile(tmp_path / "lab.jsonl")
    for result in study_results():
        file.add(replace(result, seconds={"base": 0.0, "train": 1.0, "test": 2.0}))
    monkeypatch.setattr(figures, "axes", lambda kept=figures.axes(): [kept[0], *kept[-3:]])  # noqa: B008
    monkeypatch.setattr("sys.argv", ["figures", "--results", str(file.path), "--output", str(tmp_path)])
    figures.main()
    assert (tmp_path / "lab-length.svg").stat().st_size > 1000
    assert (tmp_path / "lab-length.png").stat().st_size > 1000
    text = (tmp_path / "lab.md").read_text()
    assert "| delimiter+ISE - delimiter | +44 (two seeds)" in text, "too few for an interval"
    assert not (tmp_path / "lab-unseen.svg").exists()
    assert not (tmp_path / "lab-mix-4x.svg").exists(), "one point is no axis"


# --- command -----------------------------------------------------------------------------------------------------


def test_the_command_trains_shows_keeps_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["lab", *QUICK, "--arm", "text", "delimiter+ISE", "-o", str(tmp_path / "lab")]
    assert main(given) == 0
    shown = capsys.readouterr()
    assert "separation 8x" in shown.out
    assert "utility is below 95%" in shown.out
    results = ResultFile(tmp_path / "lab" / "results.jsonl").results
    assert [result.config.arm for result in results] == ["text", "delimiter+ISE"]
    assert results[0].table_ratio is None
    assert results[1].table_ratio is not None
    report = (tmp_path / "lab" / "main.md").read_text()
    assert "| separation 4x | " in report
    assert main(given) == 0
    assert "2 of 2 runs are in" in capsys.readouterr().err
    assert len(ResultFile(tmp_path / "lab" / "results.jsonl").results) == 2
    for line in (tmp_path / "lab" / "results.jsonl").read_text().splitlines():
        assert LabResult.from_dict(json.loads(line)).to_dict() == json.loads(line)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--axis", "lr", "--arm", "text"], "name an arm with \\+ISE"),
        (["--init-std", "0.1", "--init-ratio", "0.1"], "not both"),
        (["--lr-multiple", "-1"], "lr_multiple=-1"),
        (["--samples", "0"], "test_samples=0"),
    ],
)
def test_the_command_refuses(given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *given, "-o", str(tmp_path)]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_options_become_settings() -> None:
    configs = configs_for(LabOptions(arm=("delimiter", "text+ISE"), seed=4, mix="clean", steps=7, init_ratio=0.5))
    assert [config.arm for config in configs] == ["delimiter", "text+ISE"]
    assert all(
        (one.seed, one.mix, one.steps, one.init_std, one.init_ratio) == (4, "clean", 7, None, 0.5) for one in configs
    )
    varied = configs_for(LabOptions(axis="lr", arm=("delimiter+ISE",)))
    assert [label_of(config, varied) for config in varied][:2] == [
        "delimiter+ISE\nlr_multiple 1",
        "delimiter+ISE\nlr_multiple 10",
    ]
    said = "mix=clean, steps=7, init_std=None, init_ratio=0.5, base_steps=1200, test_samples=80"
    assert setting_of(configs[0]) == said, "the command's own defaults are quicker than the study's, and say so"
    assert setting_of(LabConfig(seed=3, arm="text")) == "default"
