"""From inspect_ai's logs to runs."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolewise.evaluation.outcomes import Outcome, Run
from rolewise.evaluation.suite_info import SUITES, SuiteInfo
from rolewise.evaluation.unaskable import as_refusal, refusal_of

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

KEY = "rolewise_key"
"""Under which metadata a log keeps the key of its run."""

_SUFFIXES = (".eval", ".json")
_UNREAD = {"events", "attachments", "store", "model_usage", "role_usage", "timelines"}


def read_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
    """The runs of our suites in logs of inspect_ai, in the order in which they began.

    A run that was killed and run again has several logs: the complete one counts, or the fullest. Logs of other
    tasks are passed over, and so are files in a directory that cannot be read (with a warning).

    Args:
        paths: log files, and directories that hold them (at any depth).

    Raises:
        FileNotFoundError: when a path does not exist.
        ValueError: when a file that was named is no log, or is of a task that is none of our suites.
        ImportError: when inspect_ai is not installed; it names the extra.
    """
    best: dict[Any, Run] = {}
    for path, named in _files(paths):
        run = _read(path, named)
        if run is None:
            continue
        identity = (run.model, run.suite, run.probe, _frozen(run.settings))
        other = best.get(identity)
        if other is None or _fullness(run) > _fullness(other):
            best[identity] = run
    return labelled(sorted(best.values(), key=lambda run: run.created))


def _fullness(run: Run) -> tuple[bool, int, str]:
    return run.complete, len(run.outcomes) + len(run.refused), run.created


def find_run(directory: str | os.PathLike[str], key: str) -> Run | None:
    """The complete run in `directory` whose log was given `key` (see `rolewise.evaluation.running`), or None."""
    from inspect_ai.log import read_eval_log

    for path, _ in _files([directory]) if Path(directory).is_dir() else ():
        try:
            header = read_eval_log(str(path), header_only=True)
            if header.status == "success" and (header.eval.metadata or {}).get(KEY) == key:
                run = run_of(read_eval_log(str(path), exclude_fields=_UNREAD))
                if run.complete:
                    return run
        except Exception:  # a file that is no log, or was cut off: evaluated again
            continue
    return None


def labelled(runs: list[Run]) -> list[Run]:
    """The same runs, with labels that tell them apart: longer ones where the short ones are the same."""
    found = runs
    for candidate in (lambda run: run.label, _long_label, _longest_label):
        counts = Counter((run.suite, run.label) for run in found)
        found = [
            replace(run, label=candidate(original)) if counts[run.suite, run.label] > 1 else run
            for run, original in zip(found, runs, strict=True)
        ]
    counts, seen = Counter((run.suite, run.label) for run in found), Counter[tuple[str, str]]()
    for place, run in enumerate(found):
        if counts[run.suite, run.label] > 1:
            seen[run.suite, run.label] += 1
            found[place] = replace(run, label=f"{run.label} ({seen[run.suite, run.label]})")
    return found


def _long_label(run: Run) -> str:
    return run.model.partition("/")[2] + (f" [{run.probe}]" if run.probe else "")


def _longest_label(run: Run) -> str:
    task = run.settings["task"]
    told = {name: task[name] for name in ("attacks", "payload", "seed", "turn", "via", "method") if name in task}
    told |= {name: value for name, value in run.settings["model"].items() if name != "probe"}
    told |= {name: run.settings[name] for name in ("grader",) if name in run.settings}
    return _long_label(run) + (f" {told}" if told else "")


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterable[tuple[Path, bool]]:
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            yield from (
                (file, False) for file in sorted(path.rglob("*")) if file.suffix in _SUFFIXES and file.is_file()
            )
        elif path.exists():
            yield path, True
        else:
            raise FileNotFoundError(f"no log at {str(given)!r}; name a log file of inspect_ai, or a directory of them")


def _read(path: Path, named: bool) -> Run | None:
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise ImportError(
            "reading logs needs inspect-ai; in your clone of Rolewise: pip install -e '.[eval]'"
        ) from error
    try:
        log = read_eval_log(str(path), exclude_fields=_UNREAD)
    except Exception as error:  # whatever a damaged file leads to
        if named:
            raise ValueError(
                f"{path} is not a log that inspect_ai can read ({_reason(error)}); name what rolewise eval left in its "
                "--log-dir"
            ) from error
        if path.suffix == ".eval":
            warnings.warn(f"{path} cannot be read, and is left out: {_reason(error)}", stacklevel=3)
        return None
    suite = log.eval.task.rpartition("/")[2]
    if suite not in SUITES or not (log.eval.metadata or {}).get("identity"):
        if named:
            raise ValueError(f"{path} is of the task {log.eval.task!r}; the suites are {', '.join(SUITES)}")
        return None
    return run_of(log)


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg'].lower()}"
    return " ".join(str(error).split())[:120] or type(error).__name__


def run_of(log: EvalLog) -> Run:
    """The run in one log of our suites."""
    spec = log.eval
    metadata: dict[str, Any] = spec.metadata or {}
    suite = spec.task.rpartition("/")[2]
    info = SUITES[suite]
    samples = [sample for sample in log.samples or [] if sample.error is None]
    refused = [one for sample in samples if (one := as_refusal(sample.output, sample.metadata, sample.epoch))]
    outcomes = [
        _outcome(sample, info)
        for sample in samples
        if refusal_of(sample.output) is None and _is_judged((sample.scores or {}).keys(), info)
    ]
    epochs = spec.config.epochs or 1
    expected = (spec.dataset.samples or 0) * epochs
    arguments: dict[str, Any] = metadata["identity"][1]
    task = {name: value for name, value in spec.task_args.items() if name != "answers"}
    task["data"] = task.get("data") or spec.dataset.location  # which file was the default
    probe = arguments.get("probe")
    return Run(
        model=spec.model,
        label=Path(spec.model).name + (f" [{probe}]" if probe else ""),
        suite=suite,
        probe=probe,
        settings={
            "task": task,
            "model": arguments,
            "weights": metadata["identity"][-1],
            "data": metadata.get("data_sha256"),
            **_further(log),
            "generation": spec.model_generate_config.model_dump(exclude_none=True, exclude={"max_connections"}),
        },
        versions={**metadata.get("versions", {}), **spec.packages},
        created=str(spec.created),
        complete=log.status == "success" and len(outcomes) + len(refused) == expected,
        expected=expected,
        outcomes=outcomes,
        refused=refused,
    )


def _further(log: EvalLog) -> dict[str, Any]:
    """What only some runs have: further files, and a grader."""
    files = (log.eval.metadata or {}).get("files")
    graders = (log.eval.model_roles or {}).get("grader")
    first = graders[0] if isinstance(graders, list) else graders
    return ({"files": files} if files else {}) | ({"grader": first.model} if first else {})


def _is_judged(scores: Collection[str], info: SuiteInfo) -> bool:
    """Whether the scorers have seen the answer: all criteria, or what there is of them where graders judge."""
    if info.kind is None:
        return all(name in scores for name in info.criteria)
    return any(name in scores for name in (*info.criteria, *info.measures))


def _outcome(sample: EvalSample, info: SuiteInfo) -> Outcome:
    scores = sample.scores or {}
    meta = dict(sample.metadata)
    messages: list[dict[str, Any]] = meta.pop("conversation")

    def value(name: str) -> float | None:
        found = scores[name].as_float() if name in scores else math.nan
        return None if math.isnan(found) else found  # inspect_ai's mark of a row that a scorer left out

    criteria = [name for name in info.criteria if name in scores]
    of_graders = [name for name in (*info.graded, *(info.measures or ("win_rate",))) if name in scores]
    ungraded = {name: scores[name].explanation or "" for name in of_graders if value(name) is None}
    return Outcome(
        id=meta["id"],
        condition=meta["condition"],
        domain=meta["domain"],
        epoch=sample.epoch,
        verdicts={name: value(name) == 1.0 for name in criteria if name not in ungraded},
        ungraded=ungraded,
        grades={name: grade for name in info.measures if (grade := value(name)) is not None},
        rouge_l=value("rouge_l"),
        reference_logprob=value("reference_logprob"),
        correct=value("correct"),
        win=value("win_rate"),
        span=value("span"),
        output=sample.output.completion,
        cut=sample.output.stop_reason == "max_tokens",
        messages=[*messages, *_later_turns(sample)],
        meta=meta,
    )


def _later_turns(sample: EvalSample) -> list[dict[str, Any]]:
    """What was said between the conversation that the row began with and the last answer."""
    began = 1 if isinstance(sample.input, str) else len(sample.input)
    return [{"role": one.role, "content": one.text} for one in sample.messages[began:-1]]


def _frozen(value: Any) -> str:
    import json

    return json.dumps(value, sort_keys=True, default=str)
