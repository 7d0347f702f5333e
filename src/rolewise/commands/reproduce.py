"""`rolewise reproduce`: a benchmark of the paper whole, with one command."""

from __future__ import annotations

import dataclasses
import difflib
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.eval_options import EvalConfig
from rolewise.commands.models import say

if TYPE_CHECKING:
    from rolewise.evaluation.outcomes import Run
    from rolewise.reproduce import Part

BENCHMARKS = ("instruction-hierarchy",)

TEACH = """Run the paper's Instruction Hierarchy benchmark: all suites on all models, Figure 5 and Tables 4 to 8.

Each part is a suite of rolewise eval; what was finished is read from its log, and a killed run goes on. What needs a
grader, an attacker, files or a segment table that is not there is named on the page as missing, and nothing stands in
its place. At the paper's size this takes a day on a GPU: begin with --limit 10, or look with --plan.

The test files lie in one folder by their published names (--data-dir): alpacaeval805_davinci003.json,
promptextract_sharegpt-test.jsonl, promptextract_unnatural-test.jsonl, strongreject_313.csv, xstest_prompts.csv,
mt_bench_question.jsonl.

examples:
  rolewise reproduce instruction-hierarchy --models runs/delimiter runs/ise --plan
  rolewise reproduce instruction-hierarchy --models runs/delimiter runs/ise --limit 10
  rolewise reproduce instruction-hierarchy --models runs/delimiter runs/ise --grader openai/gpt-4o \\
    --attacker openai/gpt-4o --templates jailbreaks-1.csv jailbreaks-2.csv -o reproduction
"""


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """What `rolewise reproduce` does."""

    benchmark: Annotated[tyro.conf.Positional[Literal["instruction-hierarchy"]], tyro.conf.arg(metavar="BENCHMARK")]
    """instruction-hierarchy."""
    models: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODEL...")]
    """Models as rolewise eval takes them; the paper's baseline first."""
    grader: str | None = None
    """A model of inspect_ai that judges AlpacaEval, MT-Bench, harmful requests and refusals."""
    attacker: str | None = None
    """A model of inspect_ai that refines the attacks of PAIR."""
    templates: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE...")] = ()
    """Files of jailbreak templates; the paper has two collections."""
    data_dir: Path = Path("../shared/data/eval")
    """The folder with the test files."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART...")] = ()
    """Run only these parts (--plan lists them); the page is made of all that have been run."""
    limit: int | None = None
    """Samples of each suite; by default all. Figures of few samples are rough: the intervals say how rough."""
    seed: int = 0
    """Of what attacks draw, and of sampling."""
    batch_size: int = 32
    """Rows that our models compute together."""
    device: str | None = None
    """Where our models run; by default an accelerator if there is one."""
    dtype: Literal["fp32", "bf16"] | None = None
    """How our models compute; by default as they were saved."""
    log_dir: Path = Path("logs/instruction-hierarchy")
    """Where logs go, and answers as they come."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = Path("reproduction")
    """Where instruction_hierarchy.md, its CSV and its figures go, and a report of all suites."""
    no_text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave conversations and answers out of the report: what you may not publish stays out."""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only show what would be run, what was, and what is missing."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model: --models runs/delimiter runs/ise")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"--limit {self.limit} must be at least 1")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in BENCHMARKS:
        near = difflib.get_close_matches(arguments[0], BENCHMARKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(BENCHMARKS)}"
        raise ValueError(f"unknown benchmark {arguments[0]!r}; {hint}")
    config = parse(ReproduceConfig, arguments, command="reproduce", teach=TEACH)
    from rolewise.reproduce import Inputs, parts

    inputs = Inputs(
        data=config.data_dir, grader=config.grader, attacker=config.attacker, templates=config.templates,
        limit=config.limit, seed=config.seed,
    )  # fmt: skip
    every = parts(inputs)
    if unknown := [name for name in config.only if name not in {part.key for part in every}]:
        near = difflib.get_close_matches(unknown[0], [part.key for part in every], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"--only {unknown[0]}: {hint}the parts are {', '.join(part.key for part in every)}")
    from rolewise.commands.eval_runs import look_up

    names, bare = look_up(EvalConfig(models=config.models))
    _say_plan(every)
    if config.plan:
        return 0
    from rolewise.reporting.write import check_target

    check_target(config.output / "suites")
    runs = _run(config, every, names, bare)
    _write(config, every, runs)
    return 0


def _say_plan(every: Sequence[Part]) -> None:
    for part in every:
        say(f"{part.key:<28} {part.title}" + (f": {part.missing}" if part.missing else ""))


def _eval_config(config: ReproduceConfig, part: Part, models: Sequence[str]) -> EvalConfig:
    return EvalConfig(
        models=tuple(models), batch_size=config.batch_size, device=config.device, dtype=config.dtype,
        log_dir=config.log_dir / part.key, **part.options,
    )  # fmt: skip


def _fit(part: Part, config: ReproduceConfig, names: Sequence[str], bare: set[str]) -> list[str]:
    """The models, as they were named, that a part can be run on."""
    from rolewise.evaluation.running import PROVIDER

    def fits(name: str) -> bool:
        ours = name.startswith(f"{PROVIDER}/")
        if part.table_only:
            return ours and name not in bare
        return ours or not part.ours_only

    return [given for given, name in zip(config.models, names, strict=True) if fits(name)]


def _run(
    config: ReproduceConfig, every: Sequence[Part], names: Sequence[str], bare: set[str]
) -> dict[str, dict[str, Run]]:
    """By part, then by model, the runs; those of parts that are not asked for, as far as they were finished."""
    from rolewise.commands.eval_runs import evaluate, finished

    found: dict[str, dict[str, Run]] = {}
    for place, part in enumerate(every, 1):
        models = [] if part.missing else _fit(part, config, names, bare)
        if not models:
            continue
        options = _eval_config(config, part, models)
        if config.only and part.key not in config.only:
            found[part.key] = {model: run for model, run in zip(models, finished(options), strict=True) if run}
            continue
        say(f"part {place} of {len(every)}: {part.title}")
        found[part.key] = dict(zip(models, evaluate(options), strict=True))
    return found


def _write(config: ReproduceConfig, every: Sequence[Part], runs: dict[str, dict[str, Run]]) -> None:
    from rolewise.reporting import build_sections, write_report
    from rolewise.reproduce import Page, Readings, gaps, write_page

    labels = _labels(config.models)
    readings = Readings.of(
        list(labels.values()),
        {(labels[model], key): run for key, by_model in runs.items() for model, run in by_model.items()},
    )
    ran = {key: [labels[model] for model in by_model] for key, by_model in runs.items()}
    missing = list(gaps(every, ran, readings.models))
    about = [
        f"grader: {config.grader or 'none'}; attacker: {config.attacker or 'none'}",
        f"samples of each suite: {config.limit or 'all'}; seed {config.seed}; greedy answers",
        *(
            []
            if config.grader
            else ["without a grader, a classifier says whether answers to harmful requests and benign prompts refuse"]
        ),
        *dict.fromkeys(
            ", ".join({name.replace("_", "-"): f"{name} {number}" for name, number in run.versions.items()}.values())
            for by_model in runs.values()
            for run in by_model.values()
        ),
    ]
    commands = [_command(config, part, list(runs[part.key])) for part in every if runs.get(part.key)]
    page = Page(readings=readings, gaps=missing, about=about, commands=commands)
    written = write_page(page, config.output)
    together = [run for by_model in runs.values() for run in by_model.values() if run.outcomes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what two runs differ in is said in the report
        sections = build_sections(together)
    write_report(sections, config.output / "suites", text=not config.no_text, title="Instruction Hierarchy: all suites")
    for line in missing:
        say(f"missing: {line}")
    say(f"{written[-1]}; every row and answer: {config.output / 'suites' / 'index.html'}")


def _labels(models: Sequence[str]) -> dict[str, str]:
    """A short name for each model, unless two would have the same."""
    short = {model: Path(model).name or model for model in models}
    return short if len(set(short.values())) == len(models) else {model: model for model in models}


def _command(config: ReproduceConfig, part: Part, models: Sequence[str]) -> str:
    """The part as a command of its own."""
    defaults: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(EvalConfig) if field.name != "models"
    }
    given = dataclasses.asdict(_eval_config(config, part, models))
    options = [
        f"--{name.replace('_', '-')} {shlex.quote(str(given[name]))}"
        for name in defaults
        if given[name] != defaults[name]
    ]
    return " ".join(["rolewise eval", *map(shlex.quote, models), *options])
