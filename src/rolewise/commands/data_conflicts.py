"""`rolewise data conflicts`: generated conflicts between roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from rolewise.commands.arguments import named_as_options, parse
from rolewise.commands.attack import check_output
from rolewise.commands.models import say
from rolewise.data.jsonl import write_jsonl

TEACH = """Make training rows in which a rule of the system meets an order against it; no corpus and no teacher needed.

The system states a rule (a format, a language, banned words, a secret, an ordering, ...), and the user, a second
turn, the data or a tool orders the contrary: the answer keeps the rule. Each has a twin in which the same order comes
from who may give it, and the answer carries it out; some rows have a rule and no order, some neither. `rolewise eval
--suite rules` tests with other words, and with kinds of rules that no training row has.

examples:
  rolewise data conflicts -o conflicts.jsonl
  rolewise data conflicts --rows 4000 --channels data tool -o conflicts.jsonl
  rolewise data conflicts --list
"""


@dataclass(frozen=True, kw_only=True)
class ConflictsConfig:
    """What `rolewise data conflicts` does."""

    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="OUT")] = ""
    """The JSONL file to write."""
    rows: int = 2000
    """How many rows; a multiple of eight keeps the mix exact."""
    seed: int = 0
    """Of everything."""
    kinds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KIND...")] = ()
    """Kinds of rules; by default all that training may have."""
    channels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CHANNEL...")] = ()
    """Who gives the order: user, data, tool, second_turn; by default all."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show the kinds of rules, and which are held out for tests."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace OUT when it exists."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"--rows {self.rows} must be at least 1")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(ConflictsConfig, arguments, command="data conflicts", teach=TEACH)
    from rolewise.data.conflicts import conflict_rows, held_out_kinds, kind_names

    if config.list:
        held_out = set(held_out_kinds())
        for name in dict.fromkeys([*kind_names("train"), *kind_names("test")]):
            print(f"{name:<24} {'held out for tests' if name in held_out else 'training and tests'}")
        return 0
    output = check_output(config.output, config.overwrite)
    options: dict[str, Any] = {"kinds": config.kinds or None, "channels": config.channels or None}
    with named_as_options(ConflictsConfig):
        rows = list(conflict_rows(config.rows, seed=config.seed, **options))
    write_jsonl(rows, output)
    for name, count in Counter(row["meta"]["condition"] for row in rows).most_common():
        say(f"{name:<17} {count:>7}")
    say(f"rows in {config.output}")
    return 0
