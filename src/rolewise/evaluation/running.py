"""Running suites: one model after the other, progress shown, nothing asked twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolewise.evaluation.logs import KEY, find_run, run_of
from rolewise.evaluation.outcomes import Run
from rolewise.evaluation.testsets import task_bytes

PROVIDER = "rolewise"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A model on a suite."""

    model: str
    """As inspect_ai knows it: provider/name."""
    suite: str
    """The name of its task."""
    task_args: Mapping[str, Any]
    model_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grader: str | None = None
    """A model of inspect_ai that judges answers."""

    @property
    def key(self) -> str:
        """A hash of all that decides the outcomes, but for a remote model's own state."""
        from rolewise.commands.answer_file import model_stamp
        from rolewise.evaluation.store import content_key, told_arguments

        ours = self.model.startswith(f"{PROVIDER}/")
        stamp = model_stamp(self.model.partition("/")[2]) if ours else None
        data = task_bytes(self.suite, self.task_args)
        return content_key(
            self.model, stamp, self.suite, dict(self.task_args), told_arguments(self.model_args), self.grader,
            content_key(data.decode("utf-8", "replace")),
        )  # fmt: skip


def model_name(name: str) -> str:
    """The name by which inspect_ai knows a model: `rolewise/<name>` unless it names a provider already.

    A path that exists is ours whatever its first part; `rolewise/openai/gpt-oss-20b` says that a hub id is.

    Raises:
        ValueError: when the name is empty, or lacks what comes after its provider.
    """
    provider, slash, rest = name.partition("/")
    if not name.strip() or (slash and not rest and provider == PROVIDER):
        raise ValueError(f"{name!r} names no model; give a directory, a hub id, or provider/model")
    if Path(name).expanduser().exists():
        return f"{PROVIDER}/{name}"
    return name if slash and provider in _providers() else f"{PROVIDER}/{name}"


def _providers() -> set[str]:
    import inspect_ai.model  # registers its own
    from inspect_ai._util.registry import registry_find, registry_info

    assert inspect_ai.model.get_model is not None
    found = registry_find(lambda info: info.type == "modelapi")
    return {PROVIDER} | {registry_info(one).name.rpartition("/")[2] for one in found}


def finished_run(plan: Plan, log_dir: Path) -> Run | None:
    """The run of this plan that `log_dir` has, or None; loads no model."""
    return find_run(log_dir, plan.key)


def run_plan(plan: Plan, log_dir: Path, *, description: str) -> Run:
    """Evaluate, or find the finished run in `log_dir`.

    Answers are kept in `log_dir/answers` as they come. After a kill the same plan asks only what is missing, and
    comes to the same outcomes.

    Raises:
        ValueError, RuntimeError: when the evaluation fails; the message says what inspect_ai says.
        KeyboardInterrupt: when it was interrupted.
    """
    from inspect_ai import eval as evaluate

    from rolewise.evaluation import registry  # tells inspect_ai of our suites and provider
    from rolewise.evaluation.store import close_stores
    from rolewise.evaluation.watching import watched_by

    assert registry.rolewise is not None
    key = plan.key
    if (run := find_run(log_dir, key)) is not None:
        return run
    answers = log_dir / "answers" / f"{_slug(plan.model)}-{key[:8]}.jsonl"
    with _Bar(description) as bar, watched_by(bar):
        try:
            logs = evaluate(
                f"{PROVIDER}/{plan.suite}",
                task_args={**plan.task_args, "answers": str(answers)},
                model=_model(plan),
                model_roles={"grader": other_model(plan.grader, "grader")} if plan.grader else None,
                metadata={KEY: key},
                log_dir=str(log_dir),
                display="none",
                log_level="error",
                log_realtime=False,
                ctl_server=False,
                acp_server=False,
                score_display=False,
            )
        finally:
            close_stores()
    if not logs or logs[0].status == "cancelled":  # inspect_ai returns on Ctrl-C
        raise KeyboardInterrupt
    (log,) = logs
    if log.status != "success":
        said = log.error.message if log.error else "no reason given"
        # A refusal (of a template that cannot render a row, say) is for the user to mend; anything else may pass.
        refused = said.startswith("ValueError(")
        again = "" if refused else "; the same command goes on"
        raise (ValueError if refused else RuntimeError)(
            f"{plan.model} on {plan.suite} failed: {said} (answers so far are kept{again}; the log is {log.location})"
        )
    return run_of(log)


def other_model(name: str, use: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """A model of inspect_ai that grades, attacks, or is under test.

    Args:
        name: as inspect_ai knows it.
        use: what it is for, in words: grader, attacker, model.
        arguments: what its provider is told.

    Raises:
        ValueError: when inspect_ai has no such model, or a key that it needs is not in the environment.
    """
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.model import get_model

    from rolewise.evaluation import registry

    assert registry.rolewise is not None
    mock: dict[str, Any] = {"custom_outputs": _mock_answer} if name.startswith("mockllm/") else {}
    try:
        return get_model(name, memoize=False, **{**mock, **(arguments or {})})
    except (PrerequisiteError, ValueError, ImportError) as error:
        said = re.sub(r"\[/?[a-z ]+\]", "", " ".join(str(error).split()))  # inspect_ai writes rich's markup
        raise ValueError(f"{use} {name!r} cannot be used: {said[:300]}") from None


def _model(plan: Plan) -> Any:
    if not plan.model.startswith(f"{PROVIDER}/"):
        return other_model(plan.model, "model", plan.model_args)
    from inspect_ai.model import get_model

    return get_model(plan.model, memoize=False, **plan.model_args)


def _mock_answer(*_: Any) -> Any:
    """The mock's default answer; its own would download a tokenizer to count tokens with."""
    from inspect_ai.model import ModelOutput, ModelUsage

    output = ModelOutput.from_content("mockllm", "Default output from mockllm/model")
    output.usage = ModelUsage()
    return output


def _slug(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "-._+" else "-" for letter in name.partition("/")[2])
    return kept.strip("-.")[-60:] or "model"


class _Bar:
    """A progress bar that learns its total when the task is made."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._bar: Any = None
        self._tokens = 0

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, answers: int) -> None:
        from tqdm import tqdm

        # Answers end in bursts, a batch at a time, so the time left is by the mean rate (smoothing=0).
        self._bar = tqdm(total=answers, desc=self._description, unit="answer", dynamic_ncols=True, smoothing=0)

    def answered(self, known: bool) -> None:
        if self._bar is not None:
            if known:
                self._bar.initial += 1  # does not count towards the rate
            self._bar.update()

    def wrote(self, tokens: int) -> None:
        self._tokens += tokens
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._tokens} tokens", refresh=False)
            self._bar.update(0)  # shows it, at most ten times a second
