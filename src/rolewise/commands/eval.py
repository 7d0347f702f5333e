"""`rolewise eval`: how robust models are, in one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rolewise.commands.arguments import parse
from rolewise.commands.eval_options import EvalConfig
from rolewise.commands.eval_runs import evaluate
from rolewise.commands.models import say

TEACH = """Attack models and compare them: does what stands in the data get carried out?

A model is a directory, a hub id or "smollm2-135m", or any model of inspect_ai (openai/…, hf/…, mockllm/model). Several
stand in one table, each with its difference to the first, the reference. Answers are kept as they come: run the same
command again after a kill and it goes on. The logs are inspect_ai's: `inspect view` shows them, `rolewise report` makes
figures. A row whose prompt is too long for a model is counted, named and left out; the exit status is then 3.

Attacked rows are one kind of suite. Others ask for what should be refused (harmful), for what only sounds so
(over-refusal), and for what a model can do at all (capability): their figures go by category, and a grader (--grader,
any model of inspect_ai) judges. Without one, a classifier says whether an answer refuses; capability needs one.

Without --data, the test rows are AlpacaEval's (or SEP's) where ../shared/data/eval has them, else rows that we generate
(--data generated). The table says which.

examples:
  rolewise eval smollm2-135m --attacks main --limit 20
  rolewise eval runs/delimiter runs/ise --data davinci_003_outputs.json   # all 21 attacks of the paper, 208 rows
  rolewise eval runs/ise --probe data-as-user --log-dir logs     # the same weights, told wrong roles
  rolewise eval runs/ise --suite direct-injection --attacks main     # 597 rows, attacked in the user turn
  rolewise eval runs/ise --suite sep --limit 100
  rolewise eval runs/ise openai/gpt-4o-mini --attacks naive,completion_real --grader openai/gpt-4o
  rolewise eval runs/ise --suite harmful --templates jailbreaks.txt --grader openai/gpt-4o
  rolewise eval runs/ise --suite over-refusal --data my_prompts.txt  # by the classifier; XSTest without --data
  rolewise eval runs/ise --suite capability --grader openai/gpt-4o --benchmarks mt_bench
  rolewise eval runs/ise --suite adaptive --method gcg --limit 10    # with the model's gradients: minutes a sample
"""

UNASKED = 3
"""The exit status when all is done, but some rows could not be asked: for the user to mend, as an error is."""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(EvalConfig, arguments, command="eval", teach=TEACH)
    runs = evaluate(config)
    from rich.console import Console

    from rolewise.evaluation.logs import labelled
    from rolewise.evaluation.table import comparison_table
    from rolewise.evaluation.unaskable import refusals_line

    # Captured output is as wide as the table needs; a terminal as wide as it is.
    console = Console() if sys.stdout.isatty() else Console(width=60 + 50 * len(runs))
    runs = labelled(runs)
    unasked = [f"{run.label}: {refusals_line(run)}" for run in runs if run.refused]
    shown = [run for run in runs if run.outcomes]
    if not shown:
        too_long = any(one.too_long for run in runs for one in run.refused)
        remedy = ". Take shorter rows, or a model with more positions" if too_long else ""
        raise ValueError("; ".join(unasked) + remedy)
    if shown[0] is not runs[0]:
        say(f"{runs[0].label}, the reference, has no answer; {shown[0].label} takes its place")
    console.print(comparison_table(shown, config.criterion))
    say(f"logs in {config.log_dir}; figures and a page: rolewise report {config.log_dir} -o report")
    for line in unasked:
        say(f"rolewise: {line}")
    return UNASKED if unasked else 0
