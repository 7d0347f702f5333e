"""The study's result files as runs that `rolewise.evaluation` takes, checked to belong into one table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.recorded import OLDEST, restored
from benchmarks.structured_query.study import Setting
from rolewise.evaluation.outcomes import Run
from rolewise.evaluation.suite_info import SUITES
from rolewise.inspection.results import Inspection

CRITERIA = tuple(SUITES["structured_query"].criteria)
AS_TRAINED = "all"
"""The run without a probe; the others have their probe's name."""

SEP = "sep"
"""The run on the other suite: other samples, and no attacks of ours."""
_TRAINED_ALIKE = ("learning_rate", "warmup", "schedule", "dtype", "batch_size", "max_length", "group_by_length")
_TABLES_ALIKE = ("table_init_std", "table_init_ratio", "table_lr_multiple")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One file of the study."""

    setting: Setting
    rows: Mapping[str, int]
    """Counts of the training rows."""
    config: Mapping[str, Any]
    training: Mapping[str, Any]
    """steps, loss, table_ratio."""
    seconds: float
    versions: Mapping[str, str]
    runs: Mapping[str, Run]
    """`all`, and those of the probes; answers and conversations are empty."""
    sep: Run | None = None
    """The run on SEP, where the file has it."""
    inspection: Inspection | None = None
    """What was measured inside the model, where the file has it."""

    @property
    def name(self) -> str:
        """The run's name in the study."""
        return self.setting.name

    def run(self, name: str) -> Run | None:
        """The run of that name, `sep` included."""
        return self.sep if name == SEP else self.runs.get(name)


def read_results(directory: Path) -> list[Result]:
    """All results of a directory; none when it is empty or missing.

    Raises:
        ValueError: when a file is no result, or when two cannot stand in one table (another model, other test rows,
            other settings); the message names both files and what differs.
    """
    results = [_read(path) for path in sorted(directory.glob("*.json"))]
    check_together(results)
    return results


def _read(path: Path) -> Result:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        setting = Setting(variant=stored["variant"], arm=stored["arm"], seed=stored["seed"])
        runs = {
            name: restored(record, f"{setting.name} {name}", SEP if name == SEP else OLDEST)
            for name, record in stored["runs"].items()
        }
        sep = runs.pop(SEP, None)
        result = Result(
            setting=setting,
            **{name: stored[name] for name in ("rows", "config", "training", "seconds", "versions")},
            runs=runs,
            sep=sep,
            inspection=Inspection.from_dict(found) if (found := stored.get("inspection")) else None,
        )
        if AS_TRAINED not in result.runs:
            raise ValueError(f"it has no run {AS_TRAINED!r}")
        for name, run in result.runs.items():
            if (run.probe or AS_TRAINED) != name:
                raise ValueError(f"its run {name!r} was made with the probe {run.probe!r}")
        if setting.result(path.parent) != path:
            raise ValueError(f"it holds the run {setting.name}")
        _require_complete(result)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} is not the study's result of that name ({said}); remove it, and let "
            "python -m benchmarks.structured_query.study make it again"
        ) from error
    return result


def _require_complete(result: Result) -> None:
    """A KeyError for what the tables would miss."""
    _ = list(_shared(result)), result.runs[AS_TRAINED].settings["task"]["data"]
    _ = [result.training[name] for name in ("steps", "loss", "table_ratio")]


def check_together(results: Sequence[Result]) -> None:
    """Whether figures of these results may stand side by side, and be paired by sample.

    Raises:
        ValueError: when not, naming two runs and what differs.
    """
    seen: dict[tuple[str, str], tuple[Any, str]] = {}
    for result in results:
        for scope, what, value in _shared(result):
            known, other = seen.setdefault((scope, what), (value, result.name))
            if known != value:
                raise ValueError(
                    f"{other} and {result.name} cannot stand in one table: {what} {_apart(known, value)}. "
                    "A trial belongs into a directory of its own (--results, for the study and for the tables)"
                )


def _shared(result: Result) -> Iterator[tuple[str, str, Any]]:
    """Scope, name and value of what must be the same in all results of that scope; the most telling first."""
    setting, config = result.setting, result.config
    yield "", "the model", config["model"]
    for run in (*result.runs.values(), *([result.sep] if result.sep else [])):
        lengths = {outcome.id: outcome.meta["data_chars"] for outcome in run.outcomes}
        yield run.suite, "the number of test samples", len(lengths)
        yield run.suite, "the test samples", sorted(lengths)
        yield run.suite, "the length of the test samples' data", [lengths[id] for id in sorted(lengths)]
        yield run.suite, "the hash of the test file", run.settings["data"]
        yield run.suite, "the test's settings", {k: v for k, v in run.settings["task"].items() if k != "attacks"}
        yield run.suite, "the generation settings", run.settings["generation"]
        yield run.suite, "the dtype of the answers", run.settings["model"].get("dtype")
        name = run.probe or AS_TRAINED
        conditions = list(dict.fromkeys(outcome.condition for outcome in run.outcomes))
        yield run.suite, f"the conditions of {name}", conditions
    yield "", "the number of training rows before twins", result.rows["written"] - result.rows["twin"]
    yield from (("", f"the setting {name}", config[name]) for name in _TRAINED_ALIKE)
    if config["ise"]:
        yield from (("tables", f"the setting {name}", config[name]) for name in _TABLES_ALIKE)
    yield setting.variant, "the setting epochs", config["epochs"]
    yield f"{setting.variant}/{setting.seed}", "the training rows", dict(result.rows)


def _apart(first: Any, second: Any) -> str:
    """`208 and 8`: the two, or the first place where they differ."""
    if isinstance(first, list) and isinstance(second, list):
        for one, other in zip(first, second, strict=False):
            if one != other:
                return _apart(one, other)
        return f"({len(first)} and {len(second)} of them)"
    if isinstance(first, dict) and isinstance(second, dict):
        name = next(name for name in {**first, **second} if first.get(name) != second.get(name))
        return f"({name}) {_apart(first.get(name), second.get(name))}"
    return f"is {first!r} in one and {second!r} in the other"
