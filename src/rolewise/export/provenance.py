"""What a model directory says about where its model comes from; what it does not say is unknown, and stays so."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from rolewise.export.staging import EXPORT_FILE
from rolewise.modeling.loading import PACKAGED, adapter_base, resolve_source
from rolewise.training.run import RUN_FILE

_PACKAGED_BASE = ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")
"""The packaged weights: 4-bit ones of this model, converted."""
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_MOST_STEPS = 8
"""Of a model trained from a model trained from a model."""


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training run of ours."""

    config: dict[str, Any]
    """Its settings; local paths are cut to their last parts."""
    result: dict[str, Any] | None
    """Rows, tokens, steps and losses; None when the run is not finished (a checkpoint)."""
    data_sha256: str | None
    """A fingerprint of the rows as they were rendered."""
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What is known of a model."""

    name: str
    """The directory's or hub's name of the source."""
    base_model: str | None
    """A hub id, when one is known; the packaged weights have one, too."""
    base_said: str | None
    """What the base is called where it is no hub id: a directory's name."""
    license: str | None
    """An identifier of the hub."""
    adapter: bool
    """Whether the source was a PEFT adapter, which the export merged."""
    runs: tuple[TrainingRun, ...] = field(default_factory=tuple)
    """Newest first: the run that made it, and those of the models that it started from."""


def provenance_of(
    source: str | os.PathLike[str], *, base_model: str | None = None, license: str | None = None
) -> Provenance:
    """Read what the files beside a model say.

    Args:
        source: as `rolewise.load` takes it.
        base_model: what the user says; it wins.
        license: what the user says; it wins.
    """
    runs: list[TrainingRun] = []
    name = os.fspath(source)
    base, said, known_license = None, None, None
    adapter = (resolve_source(source) / "adapter_config.json").exists()
    for _ in range(_MOST_STEPS):
        if name.lower() == PACKAGED:
            base, found = _PACKAGED_BASE
            known_license = known_license or found
            break
        path = _directory(name)
        if path is None:
            base = name if _HUB_ID.fullmatch(name) else None
            break
        front = _front_matter(path)
        known_license = known_license or _text(front.get("license"))
        if earlier := _read(path / EXPORT_FILE).get("provenance"):
            base, said, known_license = _exported(earlier, runs, known_license)
            break
        run = _run(path)
        if run is not None:
            runs.append(run)
        following = _next(path, run)
        if following is None:
            base = _text(front.get("base_model"))
            break
        name, said = following, Path(following).name
    return Provenance(
        name=_label(source),
        base_model=base_model or base,
        base_said=said,
        license=license or known_license,
        adapter=adapter,
        runs=tuple(runs),
    )


def _next(path: Path, run: TrainingRun | None) -> str | None:
    """What the model in `path` started from: the run says, or the adapter."""
    stored = _read(path / RUN_FILE) or _read(path.parent.parent / RUN_FILE)  # a checkpoint lies two folders below
    config = stored.get("config")
    if run is not None and isinstance(config, dict):
        return _text(cast("dict[str, Any]", config).get("model"))
    if (path / "adapter_config.json").exists():
        return adapter_base(path)
    return None


def _run(path: Path) -> TrainingRun | None:
    stored = _read(path / RUN_FILE)
    if not stored and path.parent.name == "checkpoints":
        stored = _read(path.parent.parent / RUN_FILE) | {"result": None}
    config = stored.get("config")
    if not isinstance(config, dict):
        return None
    result, versions = stored.get("result"), stored.get("versions")
    return TrainingRun(
        config={name: _shortened(name, value) for name, value in cast("dict[str, Any]", config).items()},
        result=_without_paths(cast("dict[str, Any]", result)) if isinstance(result, dict) else None,
        data_sha256=_text(stored.get("data")),
        versions=cast("dict[str, str]", versions) if isinstance(versions, dict) else {},
    )


def _exported(
    earlier: Any, runs: list[TrainingRun], known_license: str | None
) -> tuple[str | None, str | None, str | None]:
    """Take over what an earlier export has noted."""
    values = cast("dict[str, Any]", earlier) if isinstance(earlier, dict) else {}
    for run in values.get("runs") or ():
        runs.append(TrainingRun(**run))
    return values.get("base_model"), values.get("base_said"), known_license or values.get("license")


_PATHS = frozenset({"model", "data", "eval_data", "output_dir"})


def _shortened(name: str, value: Any) -> Any:
    """A card may be published, a home directory need not: local paths are cut to their last two parts."""
    if name not in _PATHS or not isinstance(value, str):
        return value
    path = Path(value)
    if path.is_absolute() or len(path.parts) > 2 or value.startswith((".", "~")):
        return "/".join(("…", *[part for part in path.parts if part not in ("/", "~", "..")][-2:]))
    return value


def _without_paths(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("output_dir", "already_done")}


def _directory(name: str) -> Path | None:
    path = Path(name).expanduser()
    return path if path.is_dir() else None


def _label(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    path = _directory(text)
    return text if path is None else path.resolve().name


def _front_matter(path: Path) -> dict[str, Any]:
    """The YAML at the head of a model card, as the hub has it."""
    try:
        text = (path / "README.md").read_text(encoding="utf-8")
        head = text.split("---", 2)[1] if text.startswith("---") else ""
        found: Any = yaml.safe_load(head)
    except (OSError, ValueError, IndexError, yaml.YAMLError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
