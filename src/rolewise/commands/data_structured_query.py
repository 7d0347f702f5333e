"""`rolewise data structured-query`: training rows from instruction corpora."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from rolewise.commands.arguments import named_as_options, parse
from rolewise.commands.attack import check_output
from rolewise.commands.models import say
from rolewise.data.jsonl import write_jsonl

TEACH = """Make training rows with roles, {"messages": [...], "meta": {...}} a line, from corpora that you name.

Clean and Adversarial Alpaca (StruQ, ISE paper), with role-swapped twins as an option.
A row has an instruction, perhaps an input, and an output. --source takes JSON, JSONL, tasks of
Super-NaturalInstructions and names of hub datasets, several at once. Adversarial: of the rows with an input, a quarter
get another row's instruction appended to it, a quarter the same behind a forged answer in foreign delimiters; the
outputs stay. --twins adds each attacked row's twin: the same extra instruction in the user turn, and both answers.
With one seed, clean and adversarial have the same rows in the same order, and the bytes are the same on any machine.
A few rows of Stanford Alpaca have an empty output, so --skip-bad leaves out, and counts, what cannot be used.
OUT's directory is made when it does not exist. For training on up to 512 tokens, --max-chars 1000 and
--max-injected-chars 500 keep nearly all rows short enough.

examples:
  rolewise data structured-query --source alpaca.json --skip-bad --variant clean -o clean.jsonl
  rolewise data structured-query --source alpaca.json dolly.json --skip-bad --twins --drop-test alpacaeval.json \\
    -o train.jsonl
  rolewise data structured-query --source alpaca.json --skip-bad --only-with-input --max-rows 600 -o small.jsonl
"""


@dataclass(frozen=True, kw_only=True)
class StructuredQueryConfig:
    """What `rolewise data structured-query` does."""

    source: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="SOURCE...")]
    """Files or names of hub datasets; several after one --source, or --source again."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="OUT")]
    """The JSONL file to write."""
    variant: Literal["clean", "adversarial"] = "adversarial"
    """clean leaves every row as it is."""
    seed: int = 0
    """Decides the order of the rows, the choice among too many, and every injection."""
    twins: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Add to each attacked row its twin: the same extra instruction in the user turn, with both answers."""
    position: Literal["end", "random"] = "end"
    """Where in the data an injection stands: its end (the paper), or begin, middle or end (SecAlign)."""
    forged: Literal["reference", "other"] = "reference"
    """The answer that completions forge: the right one (the paper), or another row's, which cannot be copied."""
    drop_test: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE...")] = ()
    """Files of test rows: what has the instruction and input of one of them is left out."""
    only_with_input: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out the rows without an input."""
    min_chars: int = 0
    """The fewest characters of a row: instruction, input and output."""
    max_chars: int | None = None
    """The most characters of a row; by default any number."""
    min_data_chars: int = 0
    """The fewest characters of an input, where a row has one."""
    max_data_chars: int | None = None
    """The most characters of an input; by default any number."""
    max_injected_chars: int | None = None
    """The most characters of an injected row (instruction, input; with --twins output, too); by default any number."""
    keep_duplicates: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep rows with the same instruction and input; without it the first of them stays."""
    max_per_source: int | None = None
    """The most rows of each source, drawn; a way to balance a small source against a large one."""
    max_rows: int | None = None
    """The most rows, drawn from all sources; twins come on top."""
    data_split: str = "train"
    """The split of hub datasets."""
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out rows that cannot be used, also of --drop-test, and count them, instead of stopping at the first one."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace OUT when it exists."""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(StructuredQueryConfig, arguments, command="data structured-query", teach=TEACH)
    with named_as_options(StructuredQueryConfig):
        return _structured_query(config)


def _structured_query(config: StructuredQueryConfig) -> int:
    from rolewise.data.structured_query import build

    sources = [source for group in config.source for source in group]
    output = check_output(config.output, config.overwrite, [*sources, *config.drop_test])
    if not sources:
        raise ValueError("no source; name files or hub datasets with --source")
    dataset = build(
        sources,
        drop_test=config.drop_test,
        split=config.data_split,
        skip_bad=config.skip_bad,
        variant=config.variant,
        seed=config.seed,
        twins=config.twins,
        position=config.position,
        forged=config.forged,
        only_with_input=config.only_with_input,
        min_chars=config.min_chars,
        max_chars=config.max_chars,
        min_data_chars=config.min_data_chars,
        max_data_chars=config.max_data_chars,
        max_injected_chars=config.max_injected_chars,
        deduplicate=not config.keep_duplicates,
        max_per_source=config.max_per_source,
        max_rows=config.max_rows,
    )
    for problem in dataset.problems[:5]:
        say(f"skipped {problem}")
    write_jsonl(dataset.rows, output)
    for name, count in dataset.counts.items():
        if count:
            say(f"{name:<17} {count:>7}")
    say(f"rows in {config.output}")
    return 0
