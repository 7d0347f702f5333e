"""The Instruction Hierarchy study on SmolLM2-135M: train an arm on a regime, attack it, keep the figures.

python -m benchmarks.instruction_hierarchy.study --list
python -m benchmarks.instruction_hierarchy.study --hours 2                      # what is missing, in order
python -m benchmarks.instruction_hierarchy.study --only hierarchy/delimiter-ise/0

Three regimes in the image of the paper's (FACTS 2.2), each with the rows of the one before: plain; + system follow;
+ hierarchy. The suites are those that need no judge. A run resumes where a kill left it: training from its last
checkpoint, evaluation from its last answers. `results/` gets one file a run, without any text of the corpora.
`--model` and `--samples` make a small trial of it, which belongs into another `--results`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarks.recorded import compact
from benchmarks.steps import evaluate, only_run, run_study, shown, study_parser, trained_apart, write_result
from rolewise.cli import main as rolewise
from rolewise.reproduce.plan import SYSTEM
from rolewise.training import load_recipe

HERE = Path(__file__).parent
CORPORA = HERE.parents[2] / "shared/data"
RECIPES = HERE.parents[1] / "recipes/smollm2/instruction-hierarchy"
RESULTS = HERE / "results"

Regime = Literal["plain", "system-follow", "hierarchy"]
REGIMES: tuple[Regime, ...] = ("plain", "system-follow", "hierarchy")
ARMS = ("delimiter", "delimiter-ise")

EPOCHS: dict[Regime, float] = {"plain": 1.0, "system-follow": 1.0, "hierarchy": 1.0}

_ALPACA_EVAL = str(CORPORA / "eval/alpacaeval805_davinci003.json")
_INDIRECT = ("indirect-injection", "--data", _ALPACA_EVAL, "--system", SYSTEM, "--max-new-tokens", "96")
SUITES: dict[str, tuple[str, ...]] = {
    "indirect": (*_INDIRECT, "--attacks", "main,ood"),
    "direct": ("direct-injection", "--data", _ALPACA_EVAL, "--attacks", "main,ood", "--max-new-tokens", "96"),
    "extraction": ("prompt-extraction", "--data", str(CORPORA / "eval/promptextract_sharegpt-test.jsonl")),
    "rules": ("rules",),
    "over-refusal": ("over-refusal", "--data", str(CORPORA / "eval/xstest_prompts.csv")),
}
"""What each is asked, but for the number of samples."""
SAMPLES = {"indirect": 100, "direct": 100, "extraction": 50, "rules": 100, "over-refusal": 100}
PROBES = ("system-as-user", "data-as-user")
"""Of arms with a table, on the attacks below: the paper's Tables 4 and 5."""
PROBED = (*_INDIRECT, "--attacks", "naive")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run of the study."""

    regime: Regime
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.regime}/{self.arm}/{self.seed}"

    def result(self, directory: Path) -> Path:
        return directory / f"{self.regime}-{self.arm}-{self.seed}.json"


STUDY = [Setting(regime=regime, arm=arm, seed=0) for regime in reversed(REGIMES) for arm in ARMS]
"""In order of worth: the whole hierarchy first."""


def run(setting: Setting, options: argparse.Namespace) -> None:
    """Train, evaluate and write the result of one run, or what is left of it."""
    began = time.monotonic()
    folder = options.work / setting.name
    rows, model, logs = folder / "rows.jsonl", folder / "model", folder / "logs"
    if rolewise(["data", "hierarchy", str(RECIPES / f"data-{setting.regime}.yaml"), "-o", str(rows)]):
        raise SystemExit("rolewise data hierarchy failed; see above")
    config = load_recipe(
        RECIPES / f"{setting.arm}.yaml",
        model=options.model,
        data=str(rows),
        output_dir=str(model),
        seed=setting.seed,
        epochs=EPOCHS[setting.regime],
        dtype="mixed",
    )
    trained = trained_apart(config, setting.name)
    for name, suite in SUITES.items():
        evaluate(model, logs / name, "--suite", *suite, "--limit", str(options.samples or SAMPLES[name]))
    for probe in PROBES if config.ise else ():
        limit = str(options.samples or SAMPLES["indirect"])
        evaluate(model, logs / probe, "--suite", *PROBED, "--limit", limit, "--probe", probe)
    result = {
        "regime": setting.regime,
        "arm": setting.arm,
        "seed": setting.seed,
        "rows": sum(1 for _ in rows.open(encoding="utf-8")),
        "config": shown(config),
        "training": {"steps": trained.steps, "loss": trained.train_loss, "table_ratio": trained.table_ratio},
        "seconds": time.monotonic() - began,
        "versions": {name: version(name) for name in ("rolewise", "torch", "transformers", "inspect-ai")},
        "runs": {folder.name: compact(only_run(folder)) for folder in sorted(logs.iterdir())},
    }
    write_result(result, setting.result(options.results))
    shutil.rmtree(model)  # the results stay; a checkpoint is half a gigabyte


def main() -> None:
    parser = study_parser(__doc__, work=Path("runs/instruction-hierarchy"), results=RESULTS)
    run_study(parser, STUDY, run, corpora=CORPORA)


if __name__ == "__main__":
    main()
