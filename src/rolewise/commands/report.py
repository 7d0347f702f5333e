"""`rolewise report`: tables, figures and one HTML page from the logs of evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rolewise.commands.arguments import named_as_options, parse
from rolewise.commands.models import say
from rolewise.unknown import did_you_mean

if TYPE_CHECKING:
    from rolewise.evaluation.outcomes import Run

TEACH = """Make a report from logs of evaluations: Markdown, CSV, figures (PNG and SVG) and one HTML page.

index.html needs no network. Its tables sort, and any row shows its conversation coloured by role, with the answer of
each run side by side. Runs of different suites get sections of their own. What is missing or mixed is said.

examples:
  rolewise report logs -o report
  rolewise report logs/delimiter.eval logs/ise.eval -o report --rename delimiter-600=delimiter ise-600=ISE
  rolewise report logs -o benchmarks/mine --no-text      # without corpus text, to be published
  rolewise report logs -o report --criterion begins_with
  rolewise report logs -o report --baseline delimiter    # ten runs make 45 pairs, or 9 with a baseline
"""


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What `rolewise report` does."""

    logs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="LOGS")]
    """Log files of rolewise eval or inspect eval, or directories that hold them."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """The directory to write; it is made. An earlier report in it is replaced, and nothing else."""
    criterion: str | None = None
    """When a payload counts as followed, in the suites that have this criterion: in_response (its witness stands
    anywhere in the answer, as in the paper) or begins_with (StruQ). By default each suite's first; the CSV files have
    all."""
    no_text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave conversations and answers out of the page: what you may not publish stays out."""
    rename: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OLD=NEW")] = ()
    """Names for runs in place of their own."""
    baseline: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The run that all others are compared with, by its name in the report. By default each is compared with each, or
    with the first where there are more than four."""
    title: str = "Robustness report"
    """The heading."""
    confidence: float = 0.95
    """Of every interval."""

    def __post_init__(self) -> None:
        if not self.logs:
            raise ValueError("name at least one log, or a directory of logs: rolewise report logs -o report")
        if not 0 < self.confidence < 1:
            raise ValueError(f"--confidence {self.confidence} must lie between 0 and 1, such as 0.95")
        for pair in self.rename:
            if not all(pair.partition("=")):
                raise ValueError(f"--rename {pair!r} must be OLD=NEW, such as ise-600=ISE")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(ReportConfig, arguments, command="report", teach=TEACH)
    from rolewise.evaluation.logs import read_runs
    from rolewise.reporting.wording import counted
    from rolewise.reporting.write import check_target

    check_target(Path(config.output).expanduser() if config.output.strip() else "")
    output = Path(config.output).expanduser()
    say("reading logs")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        runs = renamed(read_runs(config.logs), config.rename)
    for one in caught:
        if issubclass(one.category, UserWarning):
            say(f"rolewise: {one.message}")
    if not runs:
        raise ValueError(f"no log of a Rolewise suite in {', '.join(config.logs)}; rolewise eval writes them")
    output.mkdir(parents=True, exist_ok=True)  # if it cannot be made, that shows before figures are drawn

    from rolewise.reporting import build_sections, write_report

    options: dict[str, Any] = {"criterion": config.criterion, "confidence": config.confidence}
    with named_as_options(ReportConfig):
        sections = build_sections(runs, baseline=config.baseline, **options)
    paths = write_report(sections, output, text=not config.no_text, title=config.title)
    for section in sections:
        for line in section.gaps:
            say(f"{section.title}: {line}")
    say(f"{counted(len(runs), 'run')}, {counted(len(paths), 'file')}: open {paths[-1]}")
    return 0


def renamed(runs: Sequence[Run], pairs: Sequence[str]) -> list[Run]:
    """The runs with new labels.

    Raises:
        ValueError: when no run has an old label; it names the nearest.
    """
    new = dict(pair.split("=", 1) for pair in pairs)
    labels = list(dict.fromkeys(run.label for run in runs))
    for old in new:
        if old not in labels:
            hint = did_you_mean(old, labels, cutoff=0.4) or f"they are {', '.join(labels)}"
            raise ValueError(f"--rename: no run is called {old!r}; {hint}")
    return [replace(run, label=new.get(run.label, run.label)) for run in runs]
