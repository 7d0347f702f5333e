"""`rolewise reproduce`: a benchmark of the paper whole, with one command."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from rolewise.cli import error_line
from rolewise.commands.arguments import parse
from rolewise.commands.eval import UNASKED
from rolewise.commands.eval_options import EvalConfig
from rolewise.commands.models import say
from rolewise.evaluation.safety import load_templates
from rolewise.reproduce.plan import GCG_SAMPLES, TEMPLATE_FILES
from rolewise.unknown import did_you_mean, unknown_name

if TYPE_CHECKING:
    from rolewise.evaluation.outcomes import Run
    from rolewise.reproduce import Part

BENCHMARKS = ("instruction-hierarchy",)
FAILED = 1
"""The exit status when a part failed."""

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
    """Where instruction_hierarchy.md, its CSV and its figures go, and a report of each part."""
    no_text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave conversations and answers out of the report: what you may not publish stays out."""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only show what would be run, what was run before, and what is missing."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model: --models runs/delimiter runs/ise")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"--limit {self.limit} must be at least 1")
        if not self.data_dir.expanduser().is_dir():
            raise FileNotFoundError(f"no folder {str(self.data_dir)!r} of test files; name it with --data-dir")
        if len(self.templates) > TEMPLATE_FILES or len(set(self.templates)) < len(self.templates):
            raise ValueError(
                f"--templates takes up to {TEMPLATE_FILES} different files, not {', '.join(map(str, self.templates))}; "
                "rolewise eval --suite harmful takes any other"
            )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in BENCHMARKS:
        hint = did_you_mean(arguments[0], BENCHMARKS, cutoff=0.4) or f"there is {', '.join(BENCHMARKS)}"
        raise ValueError(f"unknown benchmark {arguments[0]!r}; {hint}")
    config = parse(ReproduceConfig, arguments, command="reproduce", teach=TEACH)
    from rolewise.reproduce import Inputs, parts

    inputs = Inputs(
        data=config.data_dir, grader=config.grader, attacker=config.attacker, templates=config.templates,
        limit=config.limit, seed=config.seed,
    )  # fmt: skip
    every = parts(inputs)
    if unknown := [name for name in config.only if name not in {part.key for part in every}]:
        raise unknown_name("part", unknown[0], [part.key for part in every])
    from rolewise.commands.eval_runs import check_log_dir, check_others, check_rows, look_up
    from rolewise.reporting.write import check_target

    given = EvalConfig(
        models=config.models, suite="adaptive", method="pair", attacker=config.attacker, batch_size=config.batch_size,
        device=config.device, dtype=config.dtype,
    )  # fmt: skip
    names, bare = look_up(given)
    check_others(given, names)
    check_others(EvalConfig(models=config.models, grader=config.grader))
    for file in config.templates:
        load_templates(file.expanduser())
    fitting = {part.key: [] if part.missing else _fit(part, config, names, bare) for part in every}
    if config.plan:
        _say_plan(config, every, fitting)
        return 0
    asked = [part for part in every if fitting[part.key] and (not config.only or part.key in config.only)]
    if not asked:
        raise ValueError(
            f"none of {', '.join(config.only) or 'the parts'} can be run: "
            + "; ".join(f"{part.key} {part.missing or 'fits no model'}" for part in every
                        if not config.only or part.key in config.only)
        )  # fmt: skip
    for part in asked:  # what cannot be read or written is found out before anything is asked
        check_rows(_eval_config(config, part, fitting[part.key]))
        folder = _report_folder(config, part)
        folder.mkdir(parents=True, exist_ok=True)
        check_target(folder)
    check_log_dir(config.log_dir)
    runs, failures = _run(config, every, asked, fitting)
    return _write(config, every, fitting, runs, failures)


def _say_plan(config: ReproduceConfig, every: Sequence[Part], fitting: Mapping[str, Sequence[str]]) -> None:
    for part in every:
        done = _finished(config, part, fitting[part.key])
        states = [f"{model} {'done' if model in done else 'to do'}" for model in fitting[part.key]]
        left = [
            f"{model} does not fit" for model in config.models if not part.missing and model not in fitting[part.key]
        ]
        say(f"{part.key:<28} {part.title}: {part.missing or ', '.join([*states, *left])}")


def _report_folder(config: ReproduceConfig, part: Part) -> Path:
    return config.output / "parts" / part.key.replace("/", "-")


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


def _finished(config: ReproduceConfig, part: Part, models: Sequence[str]) -> dict[str, Run]:
    from rolewise.commands.eval_runs import finished

    if not models:
        return {}
    known = finished(_eval_config(config, part, models))
    return {model: run for model, run in zip(models, known, strict=True) if run is not None}


def _run(
    config: ReproduceConfig, every: Sequence[Part], asked: Sequence[Part], fitting: Mapping[str, Sequence[str]]
) -> tuple[dict[str, dict[str, Run]], dict[str, str]]:
    """By part, then by model, the runs; those of parts that are not asked for, as far as they were finished.

    Besides, by part, why it failed: the others are worth their hours all the same.

    Raises:
        Exception: what the first part that failed raised, where nothing at all was measured.
    """
    from rolewise.commands.eval_runs import evaluate

    found: dict[str, dict[str, Run]] = {}
    failures: dict[str, Exception] = {}
    for part in every:
        models = fitting[part.key]
        if part not in asked:
            found[part.key] = _finished(config, part, models)
            continue
        say(f"part {asked.index(part) + 1} of {len(asked)}: {part.title}")
        try:
            found[part.key] = dict(zip(models, evaluate(_eval_config(config, part, models)), strict=True))
        except Exception as error:
            say(f"{part.title} failed: {error_line(error)}")
            failures[part.key] = error
            found[part.key] = _finished(config, part, models)
    if failures and not any(found.values()):
        raise next(iter(failures.values()))
    return found, {key: error_line(error) for key, error in failures.items()}


def _write(
    config: ReproduceConfig,
    every: Sequence[Part],
    fitting: Mapping[str, Sequence[str]],
    found: Mapping[str, Mapping[str, Run]],
    failures: Mapping[str, str],
) -> int:
    """Write the page and a report of each part; the exit status."""
    from rolewise.evaluation.logs import labelled
    from rolewise.reporting import build_sections, write_report
    from rolewise.reproduce import Page, Readings, gaps, write_page

    labels = _labels(config.models)
    runs = {(labels[model], key): run for key, by_model in found.items() for model, run in by_model.items()}
    readings = Readings.of(list(labels.values()), runs)
    named = {key: [labels[model] for model in models] for key, models in fitting.items()}
    missing = [f"{part.title}: failed: {failures[part.key]}" for part in every if part.key in failures]
    missing += gaps(every, named, readings, runs)
    about = [
        f"grader: {config.grader or 'none'}; attacker: {config.attacker or 'none'}; jailbreak templates: "
        f"{', '.join(file.name for file in config.templates) or 'none'}",
        f"samples of each suite: {config.limit or 'all'} (GCG: {min(config.limit or GCG_SAMPLES, GCG_SAMPLES)}); seed "
        f"{config.seed}; greedy answers",
        *([] if config.grader else ["without a grader, a classifier says whether answers to harmful requests and "
                                    "benign prompts refuse"]),
        *dict.fromkeys(
            ", ".join({name.replace("_", "-"): f"{name} {number}" for name, number in run.versions.items()}.values())
            for run in runs.values()
        ),
    ]  # fmt: skip
    shown = [part for part in every if found.get(part.key)]
    commands = [_command(config, part, list(found[part.key])) for part in shown]
    written = write_page(Page(readings=readings, gaps=missing, about=about, commands=commands), config.output)
    for part in shown:
        sections = build_sections(labelled([run for run in found[part.key].values() if run.outcomes]))
        write_report(sections, _report_folder(config, part), text=not config.no_text, title=part.title)
    for line in missing:
        say(f"missing: {line}")
    say(f"{written[-1]}; every row and answer: {config.output / 'parts'}, a page for each part")
    if failures:
        say("the same command again runs what failed")
        return FAILED
    return UNASKED if any(run.refused for run in runs.values()) else 0


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
