"""`rolewise data hierarchy`: the training sets of the Instruction Hierarchy, as a recipe says."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.attack import check_output
from rolewise.commands.models import say
from rolewise.data.jsonl import write_jsonl

TEACH = """Make the training set of a recipe: sources, stages that make rows of them, and a mix of these.

Stages: take, decompose, regenerate, rules, inject, override, conflict, extract, ask (docs/how-to/hierarchy-data.md).
Where the recipe has a teacher, an OpenAI-compatible endpoint with its key in the environment, it writes the rows of
the stages that have a prompt; else programs do. What it will cost at most is said before it is asked. Finished stages
and paid answers are kept in the recipe's work directory: a run that was killed, or a recipe that shares stages with
another one, repeats none of them. What was left out goes, with the reason, into OUT.rejects.jsonl.

examples:
  rolewise data hierarchy recipes/smollm2/instruction-hierarchy/data-hierarchy.yaml -o hierarchy.jsonl --review 40
  rolewise data hierarchy recipes/paper/instruction-hierarchy/data-hierarchy.yaml --estimate
"""


@dataclass(frozen=True, kw_only=True)
class HierarchyConfig:
    """What `rolewise data hierarchy` does."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE.yaml")]
    """The recipe; recipes/*/instruction-hierarchy/data-*.yaml are some."""
    output: Annotated[str | None, tyro.conf.arg(aliases=["-o"], metavar="OUT")] = None
    """The JSONL file to write, in place of the recipe's."""
    work: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Where finished stages and paid answers are kept, in place of the recipe's; by default OUT.work."""
    seed: int | None = None
    """Of every draw, in place of the recipe's."""
    budget_tokens: int | None = None
    """The most tokens of the teacher, of all runs on one work directory together, in place of the recipe's."""
    estimate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Say what the teacher would be asked, and what it would cost; ask nothing, write no rows."""
    review: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Write N of the rows, by stage, as a page to look at: OUT.review.html."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace OUT when it exists."""

    def __post_init__(self) -> None:
        if self.review < 0:
            raise ValueError(f"--review {self.review} must not be negative")
        if self.review and self.estimate:
            raise ValueError("--estimate makes no rows that --review could show; give one of the two")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(HierarchyConfig, arguments, command="data hierarchy", teach=TEACH)
    from rolewise.data.hierarchy import Pipeline, load_recipe

    recipe = load_recipe(config.recipe, output=config.output, work=config.work, seed=config.seed)
    if config.budget_tokens is not None:
        if recipe.teacher is None:
            raise ValueError(f"--budget-tokens, but {config.recipe} has no teacher; programs make all its rows")
        teacher = dataclasses.replace(recipe.teacher, budget_tokens=config.budget_tokens)
        recipe = dataclasses.replace(recipe, teacher=teacher)
    if recipe.output is None:
        raise ValueError(f"{config.recipe} names no output; give it one, or name the file with -o")
    inputs = [*recipe.drop_test, *(path for source in recipe.sources.values() for path in source.path)]
    overwrite = config.overwrite or config.estimate  # which writes nothing there
    output = check_output(recipe.output, overwrite, inputs)
    work = Path(recipe.work).expanduser() if recipe.work else output.with_name(f"{output.name}.work")
    with Pipeline(recipe, work, say=say) as pipeline:
        if recipe.teacher is not None or config.estimate:
            estimates = pipeline.estimate()
            for line in estimates or ["the teacher has nothing to do"]:
                say(str(line))
        if config.estimate:
            return 0
        made = pipeline.make()
    rejects = output.with_name(f"{output.stem}.rejects.jsonl")
    write_jsonl(made.rejects, rejects)
    write_jsonl(made.rows, output)
    for line in made.totals.splitlines():
        say(line)
    say(f"{len(made.rows):,} rows in {recipe.output}, {len(made.rejects):,} left out in {rejects.name}")
    if made.unsettled:
        say(f"{made.unsettled:,} rows got no answer; run the same again with --overwrite, and only these are asked")
    if config.review:
        from rolewise.data.hierarchy.review import review_page

        page = output.with_name(f"{output.stem}.review.html")
        page.write_text(review_page(made, config.review, recipe), encoding="utf-8")
        say(f"a page to look at: {page.name}")
    return 0
