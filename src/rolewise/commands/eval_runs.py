"""From the options of `rolewise eval` to runs: all is looked up first, then one model after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolewise.commands.arguments import named_as_options
from rolewise.commands.eval_options import EvalConfig, find_files, model_args, task_args
from rolewise.commands.models import NO_TABLE, quiet_libraries, say
from rolewise.processor import SLOW_BF16, computes_in_bf16

if TYPE_CHECKING:
    from rolewise.evaluation.outcomes import Run
    from rolewise.evaluation.running import Plan


def evaluate(config: EvalConfig) -> list[Run]:
    """The runs of the models on the suite, in their order; what was finished before is read from its log.

    Raises:
        ValueError: when an option or a file cannot be used, or a model is named twice.
        FileNotFoundError: when a file or a model is not there.
        ImportError: when inspect-ai is not installed.
    """
    from rolewise.evaluation.suite_info import chosen_criterion, suite_info
    from rolewise.evaluation.testsets import GENERATED, chosen_attacks

    suite = config.suite_name
    chosen_criterion(suite, config.criterion)
    with named_as_options(EvalConfig):
        files = find_files(config)
    source = files["data"]
    if config.has_option("attacks"):
        from rolewise.attacks import payload_named

        chosen_attacks(config.attacks, config.domain)
        payload_named(config.payload)
    if find_spec("inspect_ai") is None:
        raise ImportError("rolewise eval needs inspect-ai; in your clone of Rolewise: pip install -e '.[eval]'")
    from rolewise.evaluation.running import PROVIDER, finished_run, run_plan

    if config.dtype == "bf16" and _on_cpu(config.device) and computes_in_bf16() is False:
        say(f"{SLOW_BF16}; leave --dtype out")
    if suite_info(suite).measures and config.grader is None:
        from rolewise.evaluation.capability_suites import NEEDS_GRADER

        raise ValueError(NEEDS_GRADER)
    names, bare = look_up(config)
    check_others(config, names)
    arguments = task_args(config, files)
    check_rows(config)
    check_log_dir(config.log_dir)
    if source == GENERATED and config.data is None and suite_info(suite).file:
        say(f"no test file here, so rows are generated; --data FILE takes {suite_info(suite).published}")
    runs: list[Run] = []
    for plan, note in _plans(config, names, bare, arguments):
        shown = plan.model.removeprefix(f"{PROVIDER}/")
        if (run := finished_run(plan, config.log_dir)) is not None:
            say(f"{shown}: finished before, read from its log")
        else:
            say(f"evaluating {shown} …{note}")
            quiet_libraries()
            run = run_plan(plan, config.log_dir, description=Path(plan.model).name[:24])
        runs.append(run)
    return runs


def finished(config: EvalConfig) -> list[Run | None]:
    """The runs of the models that were finished before, read from their logs; None for the others."""
    from rolewise.evaluation.running import finished_run

    names, bare = look_up(config)
    plans = _plans(config, names, bare, task_args(config, find_files(config)))
    return [finished_run(plan, config.log_dir) for plan, _ in plans]


def _plans(
    config: EvalConfig, names: Sequence[str], bare: set[str], arguments: dict[str, Any]
) -> Iterator[tuple[Plan, str]]:
    """What is run for each model, and what is to be said of it."""
    from rolewise.evaluation.running import PROVIDER, Plan

    for name in names:
        ours = model_args(config, name in bare) if name.startswith(f"{PROVIDER}/") else {}
        note = f" ({NO_TABLE})" if name in bare and config.scale is None else ""
        if not name.startswith(f"{PROVIDER}/") and (given := _given_of_ours(config)):
            note = f" ({', '.join(given)}: for Rolewise models, not for this one)"
        plan = Plan(model=name, suite=config.suite_name, task_args=arguments, model_args=ours, grader=config.grader)
        yield plan, note


def check_rows(config: EvalConfig) -> None:
    """Whether the suite's files and options make a task: not found out after an hour of another model's answers.

    Raises:
        ValueError, OSError: when they do not; the message names the row, or the option.
    """
    from rolewise.evaluation.rehearsal import rehearse

    with named_as_options(EvalConfig):
        rehearse(config.suite_name, task_args(config, find_files(config)))


_LOADED_AT_ONCE = ("hf", "vllm", "sglang", "transformer_lens", "nnterp")
"""Providers of inspect_ai that load weights, or start a server, when a model of theirs is made."""


def check_others(config: EvalConfig, names: Sequence[str] = ()) -> None:
    """Whether models behind an API can be used (a key is there): not found out after an hour of another's answers.

    Args:
        config: has the grader and the attacker.
        names: the models under test, as inspect_ai knows them.

    Raises:
        ValueError: when one cannot.
    """
    from rolewise.evaluation.running import PROVIDER, other_model

    used = [(name, "model") for name in names if not name.startswith(f"{PROVIDER}/")]
    used += [(name, use) for use in ("grader", "attacker") if (name := getattr(config, use)) is not None]
    for name, use in used:
        if name.partition("/")[0] not in _LOADED_AT_ONCE:
            with named_as_options(EvalConfig):
                other_model(name, use)


def check_log_dir(directory: Path) -> None:
    """Make the directory of the logs: not found out after an hour that it cannot be.

    Raises:
        OSError: when it cannot be made; the message names the option.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = "it is a file" if directory.exists() else f"{error.strerror}".lower()
        raise type(error)(f"--log-dir {directory} cannot be a directory ({said}); name another one") from error


def look_up(config: EvalConfig) -> tuple[list[str], set[str]]:
    """The models as inspect_ai knows them, and those of ours that have no segment table.

    Every name is looked up before the first model is run for an hour.

    Raises:
        ValueError: when a model is named twice, or an option needs a segment table that a model does not have.
        FileNotFoundError: when a model is not there.
    """
    from rolewise.evaluation.devices import require_device
    from rolewise.evaluation.running import PROVIDER, model_name
    from rolewise.modeling.loading import has_table

    with named_as_options(EvalConfig):
        require_device(config.device)
    names = [model_name(name) for name in config.models]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{repeated[0].removeprefix(PROVIDER + '/')} is named twice; name each model once")
    for name in names:
        if not name.startswith(f"{PROVIDER}/") and (config.probe or config.scale is not None):
            raise ValueError(f"{name} has no segment table; --probe and --scale are for Rolewise models")
        _require_provider_for(name, config)
    if names and not any(name.startswith(f"{PROVIDER}/") for name in names) and (given := _given_of_ours(config)):
        raise ValueError(f"{', '.join(given)}: for Rolewise models, and {', '.join(names)} is none; leave it out")
    bare = {
        name for name in names if name.startswith(f"{PROVIDER}/") and not has_table(name.removeprefix(f"{PROVIDER}/"))
    }
    if bare and config.probe:
        raise ValueError(
            f"{min(bare).removeprefix(PROVIDER + '/')} has no segment table that --probe {config.probe} could be "
            "about; leave the model out, or train it first (rolewise train)"
        )
    return names, bare


def _given_of_ours(config: EvalConfig) -> list[str]:
    """The options that only models of ours have, as they were given."""
    given = [(name, getattr(config, name)) for name in ("batch_size", "device", "dtype")]
    return [f"--{name.replace('_', '-')} {value}" for name, value in given if value != getattr(EvalConfig, name)]


def _require_provider_for(name: str, config: EvalConfig) -> None:
    """Refuse what a model's provider cannot do: known now, not when its turn comes."""
    from rolewise.evaluation.running import PROVIDER
    from rolewise.modeling.loading import has_table

    provider, _, rest = name.partition("/")
    if provider in _LOADED_AT_ONCE and Path(rest).expanduser().is_dir() and has_table(rest):
        raise ValueError(f"{rest} has a segment table, which {provider}/ cannot tell roles; leave {provider}/ out")
    methods = [one.strip() for one in config.method.split(",")] if config.suite == "adaptive" else []
    if provider != PROVIDER and "gcg" in methods:
        raise ValueError(
            f"--method gcg needs the weights of a model of ours, and {name} has none to show; leave the model or gcg "
            "out"
        )


def _on_cpu(device: str | None) -> bool:
    import torch

    return device == "cpu" or (device is None and not torch.accelerator.is_available())
