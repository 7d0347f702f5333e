"""`rolewise lab`: the arms side by side on a small model of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from rolewise.commands.arguments import parse

if TYPE_CHECKING:
    from rolewise.lab.config import LabConfig

TEACH = """Try the method on a model of a few hundred thousand weights that trains in minutes: up to four arms side
by side (headers of words or of reserved tokens, each without and with the segment table), on the same rows.

A base model is pre-trained first (once for a seed, then kept); it carries out every instruction that it reads. Each
arm then learns who may give instructions, from short data, and is attacked in data up to 8 times as long. Finished
runs are kept in DIR/results.jsonl: the same command again goes on, and shows what is there.

examples:
  rolewise lab
  rolewise lab --arm text text+ISE delimiter delimiter+ISE --seed 1
  rolewise lab --base-steps 3000 --samples 160    # as the study that the docs show
  rolewise lab --axis lr --arm delimiter+ISE      # the table's learning rate: 1, 10, 50 and 100 times the model's
  rolewise lab --mix clean -o runs/lab-clean      # no injection is ever seen in training
"""

QUICK_BASE_STEPS, QUICK_SAMPLES = 1200, 80
"""A first look takes some minutes; the study has more of both."""

_Arms = tuple[Literal["text", "text+ISE", "delimiter", "delimiter+ISE"], ...]


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """What `rolewise lab` does."""

    arm: _Arms = ("delimiter", "delimiter+ISE")
    """The arms to train and compare; text and text+ISE are the others."""
    axis: Literal["main", "init", "lr", "mix", "steps", "unseen"] = "main"
    """What to vary: nothing (length, position, number and kind of injections are always tested), the table's start,
    its learning rate, the training rows, their amount, or the kinds of payloads seen in training."""
    seed: int = 0
    """Decides weights, rows and their order."""
    mix: Literal["twins", "adversarial", "clean"] = "twins"
    """Training rows: with injections and their twins in the user's turn, with injections alone, or with neither."""
    steps: int | None = None
    """Training steps with roles; by default 120."""
    base_steps: int = QUICK_BASE_STEPS
    """Pre-training steps; the study takes 3000. Fewer are quicker, and the model may then be too weak for its tasks."""
    lr_multiple: float | None = None
    """The table's learning rate over the model's; by default 10."""
    init_std: float | None = None
    """The table's standard deviation at the start; by default 0.01."""
    init_ratio: float | None = None
    """The same, relative to the token embeddings; in place of --init-std."""
    samples: int = QUICK_SAMPLES
    """Test rows of each kind; the study takes 160."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = Path("runs/lab")
    """Where results and pre-trained models go."""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse(LabOptions, arguments, command="lab", teach=TEACH)
    configs = configs_for(options)

    from rolewise.commands.models import quiet_libraries, say
    from rolewise.lab.report import markdown, show
    from rolewise.lab.results import ResultFile
    from rolewise.lab.run import run

    quiet_libraries()
    file = ResultFile(options.output / "results.jsonl")
    missing = file.missing(configs)
    if len(missing) < len(configs):
        say(f"{len(configs) - len(missing)} of {len(configs)} runs are in {file.path}")
    for number, config in enumerate(missing, start=1):
        result = run(config, cache=options.output / "base", progress=True)
        file.add(result)
        say(f"run {number} of {len(missing)}: {config.arm}, {sum(result.seconds.values()):.0f} s")
    results = [result for config in configs if (result := file.find(config)) is not None]
    show(results)
    report = options.output / f"{options.axis}.md"
    report.write_text(markdown(results), encoding="utf-8")
    say(f"report in {report}, figures in {file.path}")
    return 0


def configs_for(options: LabOptions) -> list[LabConfig]:
    """The runs that the options ask for.

    Raises:
        ValueError: when nothing is left to run, or a value can't be.
    """
    from dataclasses import replace

    from rolewise.lab.config import LabConfig, configs_of

    if options.init_std is not None and options.init_ratio is not None:
        raise ValueError("give either --init-std or --init-ratio, not both")
    chosen = {name: getattr(options, name) for name in ("steps", "base_steps", "lr_multiple")}
    changes = {name: value for name, value in chosen.items() if value is not None}
    changes["test_samples"] = options.samples
    if options.init_ratio is not None:
        changes |= {"init_std": None, "init_ratio": options.init_ratio}
    elif options.init_std is not None:
        changes |= {"init_std": options.init_std, "init_ratio": None}
    base = replace(LabConfig(mix=options.mix), **changes)
    configs = configs_of(options.axis, options.arm, options.seed, base)
    if not configs:
        raise ValueError(f"--axis {options.axis} is about the segment table; name an arm with +ISE")
    return configs
