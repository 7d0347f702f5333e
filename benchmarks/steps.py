"""What studies of trained models share: their command, an evaluation in its own process, a result written whole."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.workers import end_with_parent
from rolewise.commands.eval import UNASKED
from rolewise.evaluation.logs import read_runs
from rolewise.evaluation.outcomes import Run
from rolewise.processor import SLOW_BF16, computes_in_bf16
from rolewise.training import TrainConfig, TrainResult, train


def trained_apart(config: TrainConfig, progress: str) -> TrainResult:
    """`train` in a process of its own, so that its memory is free again while the model is attacked."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        return pool.submit(train, config, progress=progress).result()


def evaluate(model: Path, logs: Path, *options: str) -> None:
    """`rolewise eval` in bf16, in a process of its own."""
    command = [sys.executable, "-m", "rolewise", "eval", str(model), "--log-dir", str(logs), "--dtype", "bf16"]
    status = subprocess.run([*command, *options], check=False).returncode
    if status not in (0, UNASKED):
        raise SystemExit(f"rolewise eval ended with status {status}; the same command goes on")


def only_run(folder: Path) -> Run:
    """The run that a folder of logs holds."""
    runs = read_runs([folder])
    assert len(runs) == 1, f"{folder} holds {len(runs)} runs; delete it, and evaluate again"
    return runs[0]


def shown(config: TrainConfig) -> dict[str, Any]:
    """The settings that decide the weights."""
    names = (
        "model", "template", "ise", "table_init_std", "table_init_ratio", "table_lr_multiple", "learning_rate",
        "warmup", "schedule", "epochs", "dtype", "batch_size", "max_length", "group_by_length", "seed",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}


def write_result(result: Mapping[str, Any], target: Path) -> None:
    """As JSON, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".tmp")
    unfinished.write_text(json.dumps(result) + "\n", encoding="utf-8")
    unfinished.replace(target)


class Setting(Protocol):
    """One run of a study."""

    @property
    def name(self) -> str: ...

    def result(self, directory: Path) -> Path: ...


_Setting = TypeVar("_Setting", bound=Setting)


def study_parser(about: str | None, *, work: Path, results: Path) -> argparse.ArgumentParser:
    """The options that every study has."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the runs and which are done")
    parser.add_argument("--only", action="append", metavar="RUN", help="just this run (may be repeated)")
    parser.add_argument("--hours", type=float, default=float("inf"), help="start no further run after so long")
    parser.add_argument("--work", type=Path, default=work, help="rows, models and logs")
    parser.add_argument("--results", type=Path, default=results, help="where the figures go")
    parser.add_argument("--model", default="smollm2-135m", help="another model, for a trial")
    parser.add_argument("--samples", type=int, help="test samples of each suite, for a trial")
    return parser


def run_study(
    parser: argparse.ArgumentParser,
    study: Sequence[_Setting],
    run: Callable[[_Setting, argparse.Namespace], None],
    *,
    corpora: Path,
) -> None:
    """Make the runs that are missing, in their order, or list them."""
    options = parser.parse_args()
    names = [setting.name for setting in study]
    if unknown := sorted(set(options.only or ()) - set(names)):
        parser.error(f"unknown run {unknown[0]!r}; there are {', '.join(names)}")
    if computes_in_bf16() is False and options.model == "smollm2-135m" and not options.list:
        parser.error(f"{SLOW_BF16}, and runs in fp32 could not stand in one table with those that there are")
    if not corpora.exists():
        parser.error(f"the study reads {corpora}, which is not there")
    began = time.monotonic()
    for setting in study:
        done = setting.result(options.results).exists()
        if options.list:
            print(f"{'done   ' if done else 'missing'} {setting.name}")
        elif not done and (not options.only or setting.name in options.only):
            if time.monotonic() - began > options.hours * 3600:
                break
            print(f"=== {setting.name}", flush=True)
            run(setting, options)
