"""`rolewise data`: training rows, of one data set or another."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from rolewise.unknown import did_you_mean

DATASETS = {
    "structured-query": "Clean and Adversarial Alpaca, with role-swapped twins, from corpora that you name",
    "conflicts": "generated: a rule of the system, an order against it, and the twin that may give the order",
    "hierarchy": "Instruction Hierarchy, as a recipe says: by programs, or by a teacher model that you name",
}
"""By name, what the rows are; each is a module `data_<name>` beside this one."""


def main(arguments: Sequence[str]) -> int:
    """Run the command for the data set that is named first."""
    if not arguments:
        raise ValueError(f"name a data set: {', '.join(DATASETS)} (rolewise data --help tells what they are)")
    if (name := arguments[0]) in ("-h", "--help"):
        print(_help())
        return 0
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS, cutoff=0.4) or f"there are {', '.join(DATASETS)}"
        raise ValueError(f"unknown data set {name!r}; {hint} (rolewise data --help lists them)")
    module = importlib.import_module(f"rolewise.commands.data_{name.replace('-', '_')}")
    return int(module.main(arguments[1:]))


def _help() -> str:
    return "\n".join(
        [
            "usage: rolewise data DATASET -o OUT [options]",
            "",
            'Make training rows with roles, {"messages": [...], "meta": {...}} a line.',
            "",
            "data sets:",
            *(f"  {name:<17} {summary}" for name, summary in DATASETS.items()),
            "",
            "  rolewise data DATASET --help shows the options of one",
            "",
            "examples:",
            "  rolewise data conflicts -o conflicts.jsonl",
            "  rolewise data structured-query --source alpaca.json --skip-bad --twins -o train.jsonl",
            "  rolewise data hierarchy recipes/smollm2/instruction-hierarchy/data-hierarchy.yaml -o hierarchy.jsonl",
        ]
    )
