"""One run of the lab, from pre-training to counts."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rolewise.lab.config import LabConfig
from rolewise.lab.evaluation import evaluate, evaluation_conditions
from rolewise.lab.results import LabResult
from rolewise.lab.training import base_model, train_roles, with_roles


def run(config: LabConfig, *, cache: Path | None = None, progress: bool = False) -> LabResult:
    """Pre-train (or read from `cache`), train with roles, and test.

    Args:
        config: the run.
        cache: a directory for pre-trained models, which the arms of a seed share; None keeps nothing.
        progress: show a bar for each stage on standard error.
    """
    seconds: dict[str, float] = {}

    def stage(name: str, total: int) -> _Stage:
        return _Stage(f"seed {config.seed} {config.arm}: {name}", total, shown=progress)

    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[name] = round(now - clock, 2)
        clock = now

    with stage("base", config.base_steps) as bar:
        base = base_model(config, cache, bar.step)
    lap("base")
    model = with_roles(base, config)
    start_ratio = model.segment_ratio() if config.ise else None
    with stage("roles", config.steps) as bar:
        losses = train_roles(model, config, bar.step)
    lap("train")
    conditions = evaluation_conditions()
    with stage("tests", len(conditions)) as bar:
        counts = evaluate(model, config, conditions, bar.step)
    lap("test")
    tail = losses[-max(1, len(losses) // 10) :]
    return LabResult(
        config=config,
        counts=tuple(counts),
        loss=sum(tail) / max(1, len(tail)),
        table_ratio=model.segment_ratio() if config.ise else None,
        start_ratio=start_ratio,
        seconds=seconds,
        versions={name: version(name) for name in ("rolewise", "torch", "transformers")},
    )


class _Stage:
    """A progress bar that appears when there is something to wait for."""

    def __init__(self, description: str, total: int, *, shown: bool) -> None:
        self._description, self._total, self._shown = description, total, shown
        self._bar: Any = None

    def __enter__(self) -> _Stage:
        return self

    def step(self, done: int, loss: float | None = None) -> None:
        if self._bar is None and self._shown:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc=self._description, dynamic_ncols=True, leave=False)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
            if loss is not None:
                self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
