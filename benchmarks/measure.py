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
from typing import Any

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


def write(name: str, part: str, ratios: list[Ratio], command: str, *, order: list[str]) -> None:
    """Put one part's results into `results/name.json`, and the table of all parts into `results/name.md`."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.json"
    parts = json.loads(file.read_text()) if file.exists() else {}
    parts[part] = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "ratios": [asdict(ratio) | {"met": ratio.met} for ratio in ratios],
    }
    parts = {key: parts[key] for key in order if key in parts}
    file.write_text(json.dumps(parts, indent=2) + "\n")
    (folder / f"{name}.md").write_text(_table(parts))


def _table(parts: dict[str, Any]) -> str:
    lines = [
        "| work | model | ratio to the bare model (95 % interval) | target | met | pairs | ours | bare |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in parts.values():
        for row in record["ratios"]:
            sign = "at least" if row["higher_is_better"] else "at most"
            met = ("yes" if row["met"] else "**no**") if row["judged"] else "shown only"
            lines.append(
                f"| {row['work']} | {row['model']} | {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) "
                f"| {sign} {row['target']:g} | {met} | {row['pairs']} | {row['ours']:.4g} {row['unit']} "
                f"| {row['bare']:.4g} {row['unit']} |"
            )
    settings = {
        f"{record['date']}; " + ", ".join(f"{key} {value}" for key, value in record["machine"].items()): None
        for record in parts.values()
    }
    lines += [
        "",
        "A pair is one run of ours and one of the bare model, one after the other, the first alternating. The ratio is "
        "the median over pairs, its interval a bootstrap over pairs. For start-up the ratio is the seconds themselves.",
        "",
        *(f"- `python -m benchmarks.overhead --only {part}`" for part in parts),
        *(f"- {line}" for line in settings),
    ]
    return "\n".join(lines) + "\n"
