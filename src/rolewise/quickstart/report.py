"""What the quickstart found: one table, one attacked conversation, and where everything lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolewise.data import CEILING, CLEAN, Row
from rolewise.quickstart.answers import answers_to
from rolewise.quickstart.plan import ARMS, QuickstartConfig
from rolewise.quickstart.scoring import Estimate, Summary, compare, score, summarise

if TYPE_CHECKING:
    from rich.table import Table

REPORT = "report.md"
FIGURES = "report.json"
_LEAST_SAMPLES = 10


def summaries(output: Path, rows: Sequence[Row]) -> dict[str, Summary]:
    """The figures of each arm, from the answers on disk."""
    return {
        arm: summarise(
            score(row["meta"], answer) for row, answer in zip(rows, answers_to(output, arm, rows), strict=True)
        )
        for arm in ARMS
    }


def figure_rows(found: Mapping[str, Summary]) -> list[tuple[str, list[Estimate], Estimate | None]]:
    """The table: a label, each arm's figure, and the difference that ISE makes where it was tested."""
    base, delimiter, ise = (found[arm] for arm in ARMS)
    difference = compare(ise, delimiter)

    def row(label: str, pick: Any, metric: str | None = None) -> tuple[str, list[Estimate], Estimate | None]:
        return label, [pick(one) for one in (base, delimiter, ise)], difference[metric] if metric else None

    return [
        row("utility", lambda one: one.utility, "utility"),
        *(row(f" {name}", lambda one, name=name: one.robust[name]) for name in base.robust),
        row("robust: average", lambda one: one.average, "average"),
        row("robust: worst", lambda one: one.worst, "worst"),
        row("ceiling", lambda one: one.ceiling, "ceiling"),
        row("separation", lambda one: one.separation, "separation"),
    ]


def verdict(found: Mapping[str, Summary]) -> list[str]:
    """What the intervals allow one to say, in words."""
    _, delimiter, ise = (found[arm] for arm in ARMS)
    difference = compare(ise, delimiter)["separation"]
    said = [f"Separation of delimiter+ISE minus delimiter: {difference.percent(signed=True)} points, n = {ise.n}."]
    if difference.excludes_zero:
        said.append("That interval excludes zero: at this budget the two arms differ.")
    else:
        said.append(
            "That interval includes zero: at this budget ISE cannot be told apart from the delimiter alone. "
            "More minutes mean more rows: rolewise quickstart --minutes 60"
        )
    if ise.n < _LEAST_SAMPLES:
        said.append(
            f"With n = {ise.n} the figures only show that everything runs. For a comparison give it ten minutes."
        )
    if min(delimiter.utility.value, ise.utility.value) < 0.3:
        said.append(
            "Utility of a trained model is low: one that can hardly do the task says little about robustness; "
            "train for longer."
        )
    return said


def _table(found: Mapping[str, Summary]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"Percent [95 % interval] of n = {found[ARMS[0]].n} samples",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,  # besides the column between two: the widest figures then fit a terminal of 80 columns
    )
    table.add_column("", no_wrap=True)
    for heading in ("base", "delimiter", "+ ISE", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, estimates, difference in figure_rows(found):
        table.add_row(
            label,
            *(estimate.percent() for estimate in estimates),
            difference.percent(signed=True) if difference else "",
            style="bold" if label == "separation" else "",
            end_section=label in ("utility", "robust: worst"),
        )
    table.caption = (
        "ceiling: the payload in the user turn is followed; separation: ceiling minus attacks followed;\n"
        "difference: delimiter+ISE minus delimiter, paired"
    )
    return table


def example_row(rows: Sequence[Row], answers: Mapping[str, Sequence[str]]) -> int:
    """The attacked row that shows most: the base model follows the payload, the trained ones don't."""

    def interest(index: int) -> tuple[int, ...]:
        outcomes = {arm: score(rows[index]["meta"], answers[arm][index]) for arm in ARMS}
        return (
            sum(not outcomes[arm].followed for arm in ARMS[1:]) + outcomes["base"].followed,
            sum(outcomes[arm].correct for arm in ARMS[1:]),
            -index,
        )

    attacked = [index for index, row in enumerate(rows) if row["meta"]["condition"] not in (CLEAN, CEILING)]
    return max(attacked, key=interest)


def show_report(output: Path, rows: Sequence[Row]) -> None:
    """Print the table, one attacked conversation with each model's answer, and what to do next."""
    from rich.console import Console
    from rich.text import Text

    from rolewise.display import print_conversation, safe_text
    from rolewise.modeling import load_tokenizer

    console = Console()
    found = summaries(output, rows)
    answers = {arm: answers_to(output, arm, rows) for arm in ARMS}
    index = example_row(rows, answers)
    meta = rows[index]["meta"]
    tokenizer = load_tokenizer(output / "models" / ARMS[-1])
    console.print()
    console.print(f"One attacked conversation ({meta['condition']}), as the model gets it:", style="bold")
    print_conversation(tokenizer, rows[index]["messages"], console=console, add_generation_prompt=True)
    console.print(
        Text(
            f"right answer: {safe_text(meta['answer'])}; the payload asks for: {safe_text(meta['payload']['witness'])}"
        )
    )
    for arm in ARMS:
        outcome = score(meta, answers[arm][index])
        judged = "followed the payload" if outcome.followed else "did not follow the payload"
        console.print(Text(f"  {arm:>14}: {safe_text(answers[arm][index])!r}  ({judged})"), soft_wrap=True)
    console.print()
    console.print(_table(found))
    for line in verdict(found):
        console.print(Text(line))
    console.print()
    console.print(Text(f"models:  {output / 'models' / ARMS[1]}  and  {output / 'models' / ARMS[2]}"), soft_wrap=True)
    console.print(Text(f"report:  {output / REPORT}  (figures in {FIGURES}, answers in answers/)"), soft_wrap=True)
    console.print(Text(f"chat:    rolewise chat {output / 'models' / ARMS[2]}"), soft_wrap=True)
    console.print(Text(f"serve:   rolewise serve {output / 'models' / ARMS[2]}"), soft_wrap=True)


def write_report(
    config: QuickstartConfig, rows: Sequence[Row], models: Mapping[str, str], seconds: float | None
) -> None:
    """Write the table as Markdown and the figures as JSON into `config.output`."""
    from importlib.metadata import version

    found = summaries(config.output, rows)
    versions = {name: version(name) for name in ("rolewise", "torch", "transformers")}
    plan = json.loads((config.output / "plan.json").read_text(encoding="utf-8"))
    lines = [
        "# Quickstart",
        "",
        f"`rolewise quickstart --minutes {config.minutes:g} --seed {config.seed}`: {config.model}, "
        f"{plan['training_rows']} training rows, {plan['test_samples']} test samples, "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + (f"; {seconds / 60:.1f} minutes." if seconds else "."),
        "",
        "Percent, with 95 % intervals. An attack's figure is robust accuracy: its payload was not followed.",
        "Ceiling: the payload in the user turn was followed. Separation: ceiling minus the share of attacks followed.",
        "",
        f"| | {' | '.join(ARMS)} | difference |",
        "|---|" + "---|" * (len(ARMS) + 1),
    ]
    for label, estimates, difference in figure_rows(found):
        cells = [estimate.percent() for estimate in estimates]
        lines.append(
            f"| {label.strip()} | {' | '.join(cells)} | {difference.percent(signed=True) if difference else ''} |"
        )
    lines += ["", *verdict(found), ""]
    figures = {
        "plan": plan,
        "versions": versions,
        "seconds": seconds,
        "models": dict(models),
        "figures": {
            arm: {key: value for key, value in asdict(summary).items() if key != "scores"}
            for arm, summary in found.items()
        },
        "ISE - delimiter": {
            name: asdict(estimate) for name, estimate in compare(found[ARMS[2]], found[ARMS[1]]).items()
        },
    }
    (config.output / FIGURES).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    # The report says that the run is done, so it appears last and whole.
    unfinished = config.output / f".{REPORT}.tmp"
    unfinished.write_text("\n".join(lines), encoding="utf-8")
    unfinished.replace(config.output / REPORT)
