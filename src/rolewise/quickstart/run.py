"""The quickstart: two arms on the same rows, attacked and compared. Every step resumes where a kill left it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from rolewise.data import Row, evaluation_rows, training_rows, write_jsonl
from rolewise.quickstart.answers import answer_rows, answers_file, complete
from rolewise.quickstart.plan import ARMS, Plan, QuickstartConfig
from rolewise.quickstart.report import FIGURES, REPORT, show_report, write_report

PLAN_FILE = "plan.json"

# Chosen by measurement on SmolLM2-135M (docs/log.md).
LEARNING_RATE = 2e-4
TABLE_LR_MULTIPLE = 10.0
TABLE_INIT_RATIO = 0.1
BATCH_SIZE = 8


def run(config: QuickstartConfig) -> int:
    """Run the quickstart, or what is left of it, and print its report. Returns the process's exit status.

    Raises:
        ValueError: when `config.output` holds a quickstart of other settings.
        OSError: when `config.output` can't be written.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # loading a small model is no long work; training and asking have bars of their own
    start = time.monotonic()
    rows, resumed = _prepare(config)
    output = config.output
    if (output / REPORT).exists() and resumed:
        show_report(output, rows)
        print(f"\nThis quickstart is done already. Start over with: rolewise quickstart --output {output} --fresh")
        return 0
    print(
        f"{'resuming' if resumed else 'quickstart'} in {output}: {len(rows)} attacked and clean test conversations for "
        f"each of {len(ARMS)} models; about {config.minutes:g} min on two CPU cores in all"
    )
    models = {"base": config.model}
    for arm in ARMS[1:]:
        models[arm] = str(_train_arm(config, arm))
    for arm in ARMS:
        _answer_arm(arm, models[arm], rows, output)
    seconds = time.monotonic() - start
    write_report(config, rows, models, seconds=None if resumed else seconds)
    show_report(output, rows)
    return 0


def _prepare(config: QuickstartConfig) -> tuple[list[Row], bool]:
    """Make the rows, or check that those of an earlier start are the same. Returns the test rows."""
    output = config.output
    plan_file = output / PLAN_FILE
    conditions = sum(1 for _ in evaluation_rows(1, config.seed))
    plan = Plan.of(config.minutes, conditions)
    wanted = {
        "minutes": config.minutes,
        "seed": config.seed,
        "model": config.model,
        "training_rows": plan.training_rows,
        "test_samples": plan.test_samples,
    }
    if config.fresh and plan_file.exists():  # only ever delete what a quickstart made
        # The plan goes last: what a kill leaves is still known to be ours.
        for name in (REPORT, FIGURES, "train.jsonl", "test.jsonl", "answers", "models", PLAN_FILE):
            path = output / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    rows = list(evaluation_rows(plan.test_samples, config.seed))
    resumed = plan_file.exists()
    if resumed:
        stored = json.loads(plan_file.read_text(encoding="utf-8"))
        differing = [key for key in wanted if stored.get(key) != wanted[key]]
        if differing:
            changes = ", ".join(f"{key} {stored.get(key)} -> {wanted[key]}" for key in differing)
            raise ValueError(
                f"{output} holds a quickstart of other settings ({changes}); name another --output, or start over "
                "with --fresh"
            )
    output.mkdir(parents=True, exist_ok=True)
    for name, made in (("train.jsonl", training_rows(plan.training_rows, config.seed)), ("test.jsonl", rows)):
        if not (resumed and (output / name).exists()):
            write_jsonl(made, output / name)
    if not resumed:
        write_jsonl([wanted], plan_file)
    return rows, resumed


def _train_arm(config: QuickstartConfig, arm: str) -> Path:
    from rolewise.training import TrainConfig, train

    output = config.output / "models" / arm
    plan = json.loads((config.output / PLAN_FILE).read_text(encoding="utf-8"))
    steps = plan["training_rows"] // BATCH_SIZE
    train(
        TrainConfig(
            model=config.model,
            data=str(config.output / "train.jsonl"),
            output_dir=str(output),
            ise=arm == "delimiter+ISE",
            learning_rate=LEARNING_RATE,
            table_lr_multiple=TABLE_LR_MULTIPLE,
            table_init_ratio=TABLE_INIT_RATIO if arm == "delimiter+ISE" else None,
            batch_size=BATCH_SIZE,
            warmup=0.06,
            max_length=512,
            seed=config.seed,
            logging_steps=max(1, steps // 20),
            save_steps=max(10, steps // 4),
        ),
        progress=f"training {arm}",
    )
    return output


def _answer_arm(arm: str, model_path: str, rows: list[Row], output: Path) -> None:
    import rolewise as rw

    path = answers_file(output, arm)
    if complete(path, rows):
        return
    model: Any
    model, tokenizer = rw.load(model_path)
    if arm == "base":
        model.segment_scale = 0.0
    answer_rows(model.eval(), tokenizer, rows, path, description=f"asking {arm}")
