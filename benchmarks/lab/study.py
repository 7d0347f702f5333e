"""The lab's study: all axes, all arms, several seeds.

    python -m benchmarks.lab.study --hours 1          # goes on where an earlier call stopped
    python -m benchmarks.lab.figures                  # from the results alone

Runs are in an order in which a part is useful already: first the main setting with all arms, seed by seed; then the
table's start and learning rate; then the rest. One JSON line for each finished run, so a kill loses one run at most.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.workers import end_with_parent
from rolewise.lab import ARMS, LabConfig, LabResult, ResultFile, configs_of
from rolewise.lab.training import base_name

RESULTS = Path(__file__).parents[1] / "results" / "lab.jsonl"
CACHE = Path("runs/lab-study")
ORDER = ("main", "lr", "init", "mix", "steps", "unseen")
"""The axes, most wanted first."""


def plan(seeds: int, axes: Sequence[str] = ORDER) -> list[LabConfig]:
    """Every run once, in order: axis by axis, and within it seed by seed."""
    runs = [config for axis in axes for seed in range(seeds) for config in configs_of(axis, ARMS, seed)]
    return list(dict.fromkeys(runs))


class Clock:
    """Whether there is time for one more run, if it takes as long as the longest so far."""

    def __init__(self, hours: float) -> None:
        self._deadline = time.monotonic() + hours * 3600
        self._longest = 0.0

    def allows_another(self) -> bool:
        return time.monotonic() + self._longest < self._deadline

    def took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)


def prepare(config: LabConfig) -> LabConfig:
    """In a worker: pre-train what the arms of a seed share, if it is not there."""
    from rolewise.lab.training import base_model

    base_model(config, CACHE)
    return config


def perform(config: LabConfig) -> LabResult:
    """In a worker: one run."""
    from rolewise.lab.run import run

    return run(config, cache=CACHE)


def start_worker() -> None:
    import torch
    from transformers.utils import logging

    end_with_parent()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # two runs side by side are quicker than two threads in one


def study(
    configs: Sequence[LabConfig],
    file: ResultFile,
    clock: Clock,
    workers: Executor,
    count: int,
    report: Callable[[LabResult], None],
) -> None:
    """Do the missing runs, `count` at a time, while the clock allows; each result is kept as it comes."""
    waiting = deque(file.missing(configs))
    bases = {base_name(config): config for config in reversed(waiting)}
    unready = deque(sorted(bases.values(), key=waiting.index))
    ready: set[str] = set()
    running: dict[Future[Any], float] = {}
    while waiting or running:
        while len(running) < count and waiting and clock.allows_another():
            job = _next_job(waiting, unready, ready)
            if job is None:
                break
            running[workers.submit(*job)] = time.monotonic()
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            began = running.pop(future)
            done = future.result()
            if isinstance(done, LabResult):
                clock.took(time.monotonic() - began)
                file.add(done)
                report(done)
            else:
                ready.add(base_name(done))


def _next_job(waiting: deque[LabConfig], unready: deque[LabConfig], ready: set[str]) -> tuple[Any, LabConfig] | None:
    """The first run whose base is there, or else the next base."""
    for config in waiting:
        if base_name(config) in ready:
            waiting.remove(config)
            return perform, config
        if unready:
            return prepare, unready.popleft()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="start no run that would not fit")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--axis", choices=ORDER, action="append", help="only these axes (may be repeated)")
    parser.add_argument("--workers", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.hours <= 0 or options.seeds < 1 or options.workers < 1:
        parser.error("--hours must be above 0, --seeds and --workers at least 1")
    configs = plan(options.seeds, options.axis or ORDER)
    file = ResultFile(options.output)

    from tqdm import tqdm

    from rolewise.lab.report import setting_of

    missing = len(file.missing(configs))
    with (
        ProcessPoolExecutor(options.workers, mp_context=get_context("spawn"), initializer=start_worker) as workers,
        tqdm(total=len(configs), initial=len(configs) - missing, unit="run", dynamic_ncols=True) as bar,
    ):

        def report(result: LabResult) -> None:
            bar.update()
            bar.write(
                f"seed {result.config.seed} {result.config.arm} [{setting_of(result.config)}]: "
                f"{sum(result.seconds.values()):.0f} s, separation 1x {result.separation(1).percent()}, "
                f"4x {result.separation(4).percent()}"
            )

        study(configs, file, Clock(options.hours), workers, options.workers, report)
    left = len(file.missing(configs))
    print(f"{len(configs) - left} of {len(configs)} runs are in {options.output}; " + (
        "the same command goes on" if left else "python -m benchmarks.lab.figures draws them"))  # fmt: skip


if __name__ == "__main__":
    main()
