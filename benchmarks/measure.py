"""Paired timing: two ways to do one work, in turn in one process, compared pair by pair."""

from __future__ import annotations

import gc
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How ours compares to the bare model on one work."""

    work: str
    model: str
    ratio: float
    """Median over pairs of ours / bare."""
    low: float
    """95 % bootstrap interval of the median, lower end."""
    high: float
    """Upper end."""
    pairs: int
    ours: float
    """Median of ours, in `unit`."""
    bare: float
    unit: str
    target: float
    """The issue's target; for a throughput, what the ratio must reach."""
    judged: bool
    higher_is_better: bool = False

    @property
    def met(self) -> bool:
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    ours: Work, bare: Work, *, work: str, model: str, target: float, judged: bool, pairs: int = 20, warmup: int = 2,
    higher_is_better: bool = False,
) -> Ratio:  # fmt: skip
    """Time both in turn, who goes first alternating; garbage is collected between, not within, timings."""
    for _ in range(warmup):
        ours(), bare()
    timed: list[tuple[float, float]] = []
    for turn in range(pairs):
        gc.collect()
        gc.disable()
        if turn % 2:
            theirs = seconds(bare)
            mine = seconds(ours)
        else:
            mine = seconds(ours)
            theirs = seconds(bare)
        gc.enable()
        timed.append((mine, theirs))
    ratios = [bare / ours if higher_is_better else ours / bare for ours, bare in timed]
    low, high = bootstrap_median(ratios)
    return Ratio(
        work=work, model=model, ratio=statistics.median(ratios), low=low, high=high, pairs=pairs,
        ours=statistics.median(mine for mine, _ in timed), bare=statistics.median(theirs for _, theirs in timed),
        unit="s", target=target, judged=judged, higher_is_better=higher_is_better,
    )  # fmt: skip


def bootstrap_median(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the median."""
    rng = random.Random("bootstrap")
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def machine() -> dict[str, object]:
    """What the numbers depend on."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "rolewise")},
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def write(name: str, ratios: list[Ratio], command: str, notes: list[str]) -> None:
    """Write the results as JSON and as the Markdown table that the docs show."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    stamp = time.strftime("%Y-%m-%d")
    record = {"command": command, "date": stamp, "machine": machine(), "notes": notes}
    (folder / f"{name}.json").write_text(
        json.dumps(record | {"ratios": [asdict(ratio) | {"met": ratio.met} for ratio in ratios]}, indent=2) + "\n"
    )
    lines = [
        f"Command: `{command}`; {stamp}; " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".",
        "",
        "| work | model | ratio to the bare model (95 % interval) | target | met | pairs | ours | bare |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ratio in ratios:
        sign = "at least" if ratio.higher_is_better else "at most"
        met = ("yes" if ratio.met else "**no**") if ratio.judged else "shown only"
        lines.append(
            f"| {ratio.work} | {ratio.model} | {ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) "
            f"| {sign} {ratio.target:g} | {met} | {ratio.pairs} | {ratio.ours:.4g} {ratio.unit} "
            f"| {ratio.bare:.4g} {ratio.unit} |"
        )
    lines += ["", *(f"- {note}" for note in notes)]
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
