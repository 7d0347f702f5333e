"""The steps that studies of trained models share: evaluate in a process of its own, and write a result whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolewise.commands.eval import UNASKED
from rolewise.evaluation.logs import read_runs
from rolewise.evaluation.outcomes import Run
from rolewise.training import TrainConfig


def evaluate(model: Path, logs: Path, *options: str) -> None:
    """`rolewise eval` in bf16, in a process of its own, so that training's memory is free again."""
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
