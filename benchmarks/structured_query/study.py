"""The Structured Query study on SmolLM2-135M: train an arm, attack it, keep the figures, drop the weights.

python -m benchmarks.structured_query.study --list
python -m benchmarks.structured_query.study --hours 2                      # what is missing, in order
python -m benchmarks.structured_query.study --only twins/delimiter-ise/0

A run takes about an hour on two quiet cores that have bf16 instructions (training and answers are computed in bf16).
It resumes where a kill left it: training from its last checkpoint, evaluation from its last answers. `results/` gets
one file a run, without any text of the corpora.
`--model`, `--rows` and `--samples` make a small trial of it, which belongs into another `--results`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks.recorded import compact
from benchmarks.steps import evaluate, only_run, run_study, shown, study_parser, trained_apart, write_result
from rolewise.data import write_jsonl
from rolewise.data.structured_query import build, load_samples
from rolewise.inspection import inspect_model
from rolewise.modeling import load
from rolewise.training import load_recipe

HERE = Path(__file__).parent
CORPORA = HERE.parents[2] / "shared/data"
RECIPES = HERE.parents[1] / "recipes/smollm2/structured-query"
RESULTS = HERE / "results"

Variant = Literal["clean", "adversarial", "twins"]

SOURCES = ("alpaca_random_9k.json", "alpaca_5000.json", "dolly_3k.json", "superni")
TEST = CORPORA / "eval/alpacaeval805_davinci003.json"
SEP_TEST = CORPORA / "eval/SEP_validation_892.json"
ROWS = 2000
"""Rows with an input, of each variant; twins add one for each attacked row."""
ATTACKS = "main,ood,ignore_begin,ignore_middle"
TOKENS = 96
"""Of an answer: a model that saw twins does the user's task first, and what the payload asks after it. In 32 tokens a
ceiling of 58 % (50 samples, 160 tokens) looked like one of 31 %, and half of the attacks that succeed were not seen."""
SEP_SAMPLES, SEP_TOKENS = 100, 64
INSPECTED = 40
"""Test samples whose attention is read."""

# Every variant makes the same number of steps: the rows of `twins` are half as many again, so the others see theirs
# one and a half times.
EPOCHS: dict[Variant, float] = {"clean": 1.5, "adversarial": 1.5, "twins": 1.0}

PROBES = ("data-as-user",)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run of the study."""

    variant: Variant
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.variant}/{self.arm}/{self.seed}"

    def result(self, directory: Path) -> Path:
        return directory / f"{self.variant}-{self.arm}-{self.seed}.json"


def _settings(variant: Variant, arms: tuple[str, ...], seeds: tuple[int, ...]) -> list[Setting]:
    return [Setting(variant=variant, arm=arm, seed=seed) for seed in seeds for arm in arms]


STUDY = [
    *_settings("twins", ("delimiter", "delimiter-ise"), (0,)),
    *_settings("clean", ("delimiter", "delimiter-ise"), (0,)),
    *_settings("adversarial", ("delimiter", "delimiter-ise"), (0,)),
    *_settings("adversarial", ("text", "text-ise"), (0,)),
    *_settings("twins", ("delimiter", "delimiter-ise"), (1, 2)),
]
"""In order of worth: the first two are what the study is about."""


def training_rows(setting: Setting, path: Path, count: int) -> dict[str, int]:
    """Write the rows of a run; the same for every arm."""
    folder = CORPORA / "sft"
    sources = [str(file) for name in SOURCES for file in (sorted((folder / name).glob("*.json")) or [folder / name])]
    dataset = build(
        sources,
        variant="clean" if setting.variant == "clean" else "adversarial",
        twins=setting.variant == "twins",
        seed=setting.seed,
        only_with_input=True,
        drop_test=[str(TEST)],
        skip_bad=True,  # six rows of the corpora have no output
        max_chars=1500,
        max_per_source=1500,
        max_rows=count,
    )
    write_jsonl(dataset.rows, path)
    return dict(dataset.counts)


def run(setting: Setting, options: argparse.Namespace) -> None:
    """Train, evaluate and write the result of one run, or what is left of it."""
    began = time.monotonic()
    folder = options.work / setting.name
    rows, model, logs = folder / "rows.jsonl", folder / "model", folder / "logs"
    counts = training_rows(setting, rows, options.rows)
    config = load_recipe(
        RECIPES / f"{setting.arm}.yaml",
        model=options.model,
        data=str(rows),
        output_dir=str(model),
        seed=setting.seed,
        epochs=EPOCHS[setting.variant],
        dtype="mixed",
    )
    trained = trained_apart(config, setting.name)
    limit = ["--limit", str(options.samples)] if options.samples else []
    limit += ["--max-new-tokens", str(TOKENS), "--data", str(TEST)]
    evaluate(model, logs / "all", "--attacks", ATTACKS, *limit)
    for probe in PROBES if config.ise else ():
        evaluate(model, logs / probe, "--attacks", "main", "--probe", probe, *limit)
    few = options.samples or SEP_SAMPLES
    sep = ["--suite", "sep", "--data", str(SEP_TEST), "--limit", str(few), "--max-new-tokens", str(SEP_TOKENS)]
    evaluate(model, logs / "sep", *sep)
    result = {
        "variant": setting.variant,
        "arm": setting.arm,
        "seed": setting.seed,
        "rows": counts,
        "config": shown(config),
        "training": {"steps": trained.steps, "loss": trained.train_loss, "table_ratio": trained.table_ratio},
        "seconds": time.monotonic() - began,
        "versions": {name: version(name) for name in ("rolewise", "torch", "transformers", "inspect-ai")},
        "runs": {folder.name: compact(only_run(folder)) for folder in sorted(logs.iterdir())},
        # A quarter of an hour on one core, and the report shows the first seed's alone.
        "inspection": inspect(model, setting) if setting.seed == 0 else None,
    }
    write_result(result, setting.result(options.results))
    shutil.rmtree(model)  # the results stay; a checkpoint is half a gigabyte


def inspect(model: Path, setting: Setting) -> dict[str, Any]:
    """Where answers attend, and what each layer knows of roles; numbers only."""
    loaded, tokenizer = load(model)
    chosen = load_samples(TEST)[:INSPECTED]
    found = inspect_model(
        loaded, tokenizer, chosen, label=setting.arm, attacks=("naive",), seed=setting.seed, data=TEST.name
    )
    return found.only("share", "lift_without_first", "accuracy", "offset").to_dict()


def main() -> None:
    parser = study_parser(__doc__, work=Path("runs/structured-query"), results=RESULTS)
    parser.add_argument("--rows", type=int, default=ROWS, help="training rows, before twins")
    run_study(parser, STUDY, run, corpora=TEST)


if __name__ == "__main__":
    main()
