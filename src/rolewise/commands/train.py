"""`rolewise train`: a fine-tuning run from a YAML recipe, overridden on the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Generator, Sequence
from typing import Any

import tyro

from rolewise.commands.arguments import parse

TEACH = """Fine-tune a model with segment embeddings, as a YAML recipe says; options override the recipe.

With a recipe: rolewise train RECIPE.yaml [OPTIONS]. Its keys are the options below with _ for - (an unknown key is an
error). Started again, a killed run goes on from its newest checkpoint and ends with the same weights. The data are
rows of {"messages": [...]}, or Alpaca's {"instruction", "input", "output"}; rolewise show prints them as the model
gets them.

examples:
  rolewise train recipes/smollm2/ise.yaml --data rows.jsonl --output-dir runs/ise
  rolewise train --model smollm2-135m --data rows.jsonl --output-dir runs/delimiter --no-ise
  torchrun --nproc-per-node 8 -m rolewise train recipe.yaml --fsdp
"""
_REQUIRED = ("model", "output_dir", "data")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    from rolewise.training.config import TrainConfig

    if not arguments:
        raise ValueError(
            "train needs a recipe, or --model, --data and --output-dir: rolewise train RECIPE.yaml [OPTIONS] "
            "(rolewise train --help lists the options; recipes/ has recipes)"
        )
    recipe, options = _split(list(arguments))
    default = None if recipe is None else _recipe_defaults(recipe)
    helping = "-h" in options or "--help" in options
    usage = "train [RECIPE.yaml]" if helping else "train"
    config = parse(TrainConfig, options, command=usage, teach=TEACH, default=default)

    from rolewise.commands.models import quiet_libraries, say
    from rolewise.training import train
    from rolewise.training.notices import dtype_hint

    quiet_libraries()
    speaks = os.environ.get("RANK", "0") == "0"  # one process of torchrun's
    if speaks and (hint := dtype_hint(config)):
        say(hint)
    with _leaving_together():
        train(config)
    if speaks:
        directory = shlex.quote(config.output_dir)
        print(f"try it: rolewise chat {directory}; attack it: rolewise eval {directory}")
    return 0


@contextlib.contextmanager
def _leaving_together() -> Generator[None]:
    """Under torchrun, end the processes' group that the run began: gloo aborts a process whose peer just left."""
    from torch import distributed

    begun_by_us = distributed.is_available() and not distributed.is_initialized()
    try:
        yield
        if begun_by_us and distributed.is_initialized():
            distributed.barrier()
    finally:
        if begun_by_us and distributed.is_initialized():
            distributed.destroy_process_group()


def _split(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The recipe, which comes first (or is the one argument that ends in .yaml), and the options."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    for place, argument in enumerate(arguments):
        if argument.endswith((".yaml", ".yml")) and not argument.startswith("-"):
            return argument, arguments[:place] + arguments[place + 1 :]
    return None, arguments


def _recipe_defaults(recipe: str) -> Any:
    """The recipe's settings; what it leaves to the command line is required there."""
    from rolewise.training.config import load_recipe, read_yaml

    missing: tuple[str, ...] = ()
    try:
        return load_recipe(recipe)
    except ValueError:
        from pathlib import Path

        missing = tuple(key for key in _REQUIRED if key not in read_yaml(Path(recipe)))
        if not missing:
            raise
    config = load_recipe(recipe, **dict.fromkeys(missing, "to be given"))
    return dataclasses.replace(config, **dict.fromkeys(missing, tyro.MISSING))
