"""`rolewise eval`: how robust models are, in one table."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.models import NO_TABLE, quiet_libraries, say
from rolewise.processor import SLOW_BF16, computes_in_bf16

TEACH = """Attack models and compare them: does what stands in the data get carried out?

A model is a directory, a hub id or "smollm2-135m", or any model of inspect_ai (openai/…, hf/…, mockllm/model). Several
stand in one table, each with its difference to the first, the reference. Answers are kept as they come: run the same
command again after a kill and it goes on. The logs are inspect_ai's: `inspect view` shows them, `rolewise report` makes
figures. A row whose prompt is too long for a model is counted, named and left out; the exit status is then 3.

Without --data, the test rows are AlpacaEval's (or SEP's) where ../shared/data/eval has them, else rows that we generate
(--data generated). The table says which.

examples:
  rolewise eval smollm2-135m --attacks main --limit 20
  rolewise eval runs/delimiter runs/ise --data davinci_003_outputs.json   # all 21 attacks of the paper, 208 rows
  rolewise eval runs/ise --probe data-as-user --log-dir logs     # the same weights, told wrong roles
  rolewise eval runs/ise --suite direct-injection --attacks main     # 597 rows, attacked in the user turn
  rolewise eval runs/ise --suite sep --limit 100
  rolewise eval runs/ise openai/gpt-4o-mini --attacks naive,completion_real --grader openai/gpt-4o
"""

UNASKED = 3
"""The exit status when all is done, but some rows were too long for a model: for the user to mend, as an error is."""


_SUITE_OF = {"indirect-injection": "structured_query"}
_INJECTIONS = ("structured_query", "direct_injection")
_OF_INJECTIONS = ("attacks", "domain", "payload", "utility_tokens", "delimiters", "struq_compat", "grader")
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What `rolewise eval` does."""

    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...")]
    """Models to evaluate; the first is the reference that the others are compared with."""
    suite: Literal[
        "structured-query", "indirect-injection", "direct-injection", "sep", "rules", "prompt-extraction"
    ] = "structured-query"
    """Which benchmark: attacks in the data (indirect-injection is another name for structured-query), the same attacks
    in the user turn below a system message (direct-injection), SEP, orders against a rule of the system (rules), or
    queries that ask for the system message (prompt-extraction)."""
    data: str | None = None
    """A file of AlpacaEval's rows (instruction, input, output), of SEP, or of secrets; or generated, for rows that need
    no file.
    By default the file in ../shared/data/eval if it is there, else generated."""
    attacks: str = "all"
    """main, in_domain, ood, secalign, all (in_domain and ood), everything, or names, separated by commas; for the two
    suites of injections."""
    queries: str | None = None
    """A file of queries for prompt-extraction (a JSON array, or .txt with one a line); by default fifteen of ours."""
    domain: Literal["in_domain", "ood", "secalign"] | None = None
    """Only the attacks of this domain; by default of all."""
    payload: str = "hacked"
    """What is injected, by name: hacked, word, code, ...; rolewise attacks --payloads lists them."""
    criterion: str | None = None
    """When a payload counts as followed, in the table; the logs have all. Injections and SEP: in_response, begins_with;
    rules: obeyed, broken; prompt-extraction: leaked, decoded. By default the first."""
    limit: int | None = None
    """How many samples, by default all (of generated ones 100); each is asked under all conditions."""
    seed: int = 0
    """Of what attacks draw, and of sampling."""
    epochs: int = 1
    """How often each row is asked; more than one makes sense with a temperature only."""
    max_new_tokens: int | None = None
    """The most tokens of an answer; by default 32 for injections, 128 for sep, 64 for rules, 256 for
    prompt-extraction."""
    utility_tokens: int | None = None
    """The most tokens of answers to unattacked rows, for ROUGE-L and the judge; by default as for the others."""
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples."""
    system: str | None = None
    """The system message of direct-injection; by default one that says that the user's message holds one task."""
    data_role: Literal["user", "tool"] = "user"
    """How a model of inspect_ai that has no data role gets the data: as a user message, or as a tool's result."""
    delimiters: Literal["text", "delimiter", "chatml"] | None = None
    """The template whose delimiters completion attacks forge; by default the model's own, ChatML for models that are
    not ours."""
    struq_compat: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Repeat the accidents of StruQ's code in the attacks."""
    grader: str | None = None
    """A model of inspect_ai that judges answers to unattacked rows against the reference; by default nobody does."""
    probe: Literal["system-as-user", "data-as-user", "all-one-role", "scale-0"] | None = None
    """Tell our models wrong roles; by default the right ones."""
    scale: float | None = None
    """Factor on the segment table of our models, in place of their own; 0 is the bare model."""
    batch_size: int = 32
    """Rows that our models compute together."""
    device: str | None = None
    """Where our models run; by default an accelerator if there is one."""
    dtype: Literal["fp32", "bf16"] | None = None
    """How our models compute; by default as they were saved. bf16 takes little more than half the time on processors
    that have it, but its rounding turns some answers; compare models in one dtype only."""
    log_dir: Path = Path("logs")
    """Where logs go, and answers as they come."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model, such as smollm2-135m")
        for name in ("limit", "epochs", "max_new_tokens", "utility_tokens", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value} must be at least 1")
        if not self.temperature >= 0:
            raise ValueError(f"--temperature {self.temperature} must not be negative")
        if self.system is not None and self.suite != "direct-injection":
            raise ValueError(f"--system is for the suite direct-injection; {self.suite} has none, so leave it out")
        if self.queries is not None and self.suite != "prompt-extraction":
            raise ValueError(f"--queries is for the suite prompt-extraction; {self.suite} has none, so leave it out")
        self._require_defaults()
        if self.epochs > 1 and not self.temperature:
            raise ValueError("--epochs above 1 asks the same again and again; give a --temperature above 0 with it")

    def _require_defaults(self) -> None:
        """Options that only some suites have are refused elsewhere, never ignored."""
        if self.data_role != "user" and self.suite not in ("structured-query", "indirect-injection", "sep"):
            raise ValueError(
                f"--data-role {self.data_role} is for suites with data of their own; {self.suite} has none, so leave "
                "it out"
            )
        if self.suite in ("structured-query", "indirect-injection", "direct-injection"):
            return
        for field in dataclasses.fields(self):
            if field.name in _OF_INJECTIONS and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"--{field.name.replace('_', '-')} is for suites of injected payloads; {self.suite} has no such "
                    "option, so leave it out"
                )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(EvalConfig, arguments, command="eval", teach=TEACH)
    from rolewise.evaluation.suite_info import chosen_criterion, suite_info
    from rolewise.evaluation.testsets import GENERATED, chosen_attacks, find_data

    suite = _SUITE_OF.get(config.suite, config.suite.replace("-", "_"))
    source = find_data(suite, config.data)
    chosen_criterion(suite, config.criterion)
    if config.queries is not None and not Path(config.queries).expanduser().is_file():
        raise FileNotFoundError(f"no file of queries {config.queries!r}; leave it out for our own fifteen")
    if suite in _INJECTIONS:
        from rolewise.attacks import payload_named

        chosen_attacks(config.attacks, config.domain)
        payload_named(config.payload)
    if find_spec("inspect_ai") is None:
        raise ImportError("rolewise eval needs inspect-ai; in your clone of Rolewise: pip install -e '.[eval]'")
    from rich.console import Console

    from rolewise.evaluation.logs import labelled
    from rolewise.evaluation.refusals import refusals_line
    from rolewise.evaluation.running import PROVIDER, Plan, finished_run, model_name, run_plan
    from rolewise.evaluation.table import comparison_table
    from rolewise.modeling.loading import has_table

    if config.dtype == "bf16" and _on_cpu(config.device) and computes_in_bf16() is False:
        say(f"{SLOW_BF16}; leave --dtype out")
    names = [model_name(name) for name in config.models]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{repeated[0].removeprefix(PROVIDER + '/')} is named twice; name each model once")
    task_args = _task_args(config, suite, source if source == GENERATED else str(Path(source).resolve()))
    if source == GENERATED and config.data is None and suite_info(suite).file:
        say(f"no test file here, so rows are generated; --data FILE takes {suite_info(suite).published}")
    runs: list[Any] = []
    for name in names:
        ours = name.startswith(f"{PROVIDER}/")
        if not ours and (config.probe or config.scale is not None):
            raise ValueError(f"{name} has no segment table; --probe and --scale are for Rolewise models")
    # Every name is looked up before the first model is run for an hour.
    bare = {
        name for name in names if name.startswith(f"{PROVIDER}/") and not has_table(name.removeprefix(f"{PROVIDER}/"))
    }
    if bare and config.probe:
        raise ValueError(
            f"{min(bare).removeprefix(PROVIDER + '/')} has no segment table that --probe {config.probe} could be "
            "about; leave the model out, or train it first (rolewise train)"
        )
    for name in names:
        model_args = _model_args(config, name in bare) if name.startswith(f"{PROVIDER}/") else {}
        plan = Plan(model=name, suite=suite, task_args=task_args, model_args=model_args, grader=config.grader)
        shown = name.removeprefix(f"{PROVIDER}/")
        if (run := finished_run(plan, config.log_dir)) is not None:
            say(f"{shown}: finished before, read from its log")
        else:
            say(f"evaluating {shown} …" + (f" ({NO_TABLE})" if name in bare and config.scale is None else ""))
            quiet_libraries()
            run = run_plan(plan, config.log_dir, description=Path(name).name[:24])
        runs.append(run)
    # Captured output is as wide as the table needs; a terminal as wide as it is.
    console = Console() if sys.stdout.isatty() else Console(width=60 + 50 * len(runs))
    runs = labelled(runs)
    unasked = [f"{run.label}: {refusals_line(run)}" for run in runs if run.refused]
    shown = [run for run in runs if run.outcomes]
    if not shown:
        raise ValueError(f"{'; '.join(unasked)}. Take shorter rows, or a model with more positions")
    if shown[0] is not runs[0]:
        say(f"{runs[0].label}, the reference, has no answer; {shown[0].label} takes its place")
    console.print(comparison_table(shown, config.criterion))
    say(f"logs in {config.log_dir}; figures and a page: rolewise report {config.log_dir} -o report")
    for line in unasked:
        say(f"rolewise: {line}")
    return UNASKED if unasked else 0


def _on_cpu(device: str | None) -> bool:
    import torch

    return device == "cpu" or (device is None and not torch.accelerator.is_available())


def _task_args(config: EvalConfig, suite: str, data: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "data": data,
        "limit": config.limit,
        "seed": config.seed,
        "epochs": config.epochs,
        "temperature": config.temperature,
    }
    if config.max_new_tokens is not None:
        found["max_tokens"] = config.max_new_tokens
    if suite == "direct_injection":
        found["system"] = config.system
    if suite in ("structured_query", "sep"):
        found["data_role"] = config.data_role
    if config.queries is not None:
        found["queries"] = str(Path(config.queries).expanduser().resolve())
    if suite in _INJECTIONS:
        found |= {
            "attacks": config.attacks,
            "domain": config.domain,
            "payload": config.payload,
            "delimiters": config.delimiters,
            "struq_compat": config.struq_compat,
            "utility_tokens": config.utility_tokens,
            "judge": config.grader is not None,
        }
    return found


def _model_args(config: EvalConfig, bare: bool) -> dict[str, Any]:
    given = {
        "batch_size": config.batch_size,
        "scale": 0.0 if bare and config.scale is None else config.scale,
        "probe": config.probe,
        "device": config.device,
        "dtype": _DTYPES[config.dtype] if config.dtype else None,
    }
    return {name: value for name, value in given.items() if value is not None}
