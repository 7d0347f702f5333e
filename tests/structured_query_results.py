"""Result files of the Structured Query study with counts that are known, and what reads a table of the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.structured_query.readings import Result, read_results

from rolewise.attacks import IN_DOMAIN_ATTACKS, MAIN_ATTACKS, OOD_ATTACKS

N = 20
ATTACKS = (*IN_DOMAIN_ATTACKS, *OOD_ATTACKS)
Stored = dict[str, Any]


def compacted(
    followed: Mapping[str, int], *, default: int = 4, ceiling: int = 18, n: int = N, probe: str | None = None,
    rouge: float = 0.5, logprob: float = -1.0,
) -> Stored:  # fmt: skip
    """The form of `recorded.compact`: the first so many samples follow, and half of these begin with the witness."""
    names = ATTACKS if probe is None else MAIN_ATTACKS
    counts = {"clean": 0, **{name: followed.get(name, default) for name in names}, "ceiling": ceiling}
    conditions: dict[str, Stored] = {}
    for name, count in counts.items():
        domain = "ood" if name in OOD_ATTACKS else "in_domain" if name in IN_DOMAIN_ATTACKS else name
        conditions[name] = {
            "domain": domain,
            "in_response": [int(at < count) for at in range(n)],
            "begins_with": [int(at < count // 2) for at in range(n)],
        }
    conditions["clean"] |= {"rouge_l": [rouge + (0.01 if at % 2 else -0.01) for at in range(n)],
                            "reference_logprob": [logprob] * n}  # fmt: skip
    task = {"data": "rows.json", "limit": None, "seed": 0, "attacks": "main" if probe else "all"}
    return {
        "settings": {"task": task, "model": {"probe": probe} if probe else {}, "weights": None, "data": "0123",
                     "generation": {"max_tokens": 32}},
        "ids": [f"row-{at:02}" for at in range(n)],
        "data_chars": [10 * at for at in range(n)],
        "conditions": conditions,
    }  # fmt: skip


def stored(name: str, followed: Mapping[str, int] | None = None, *, probes: Stored | None = None, **how: Any) -> Stored:
    """A result file's content."""
    variant, arm, seed = name.split("/")
    twins = 500 if variant == "twins" else 0
    runs = {"all": compacted(followed or {}, **how)}
    return {
        "variant": variant, "arm": arm, "seed": int(seed),
        "rows": {"clean": 700, "naive": 300, "twin": twins, "written": 1000 + twins},
        "config": {"model": "tiny", "template": arm.removesuffix("-ise"), "ise": arm.endswith("-ise"),
                   "table_init_std": None, "table_init_ratio": None, "table_lr_multiple": 10.0, "learning_rate": 2e-4,
                   "warmup": 0.05, "schedule": "cosine", "epochs": 1.0 if variant == "twins" else 1.5,
                   "dtype": "mixed", "batch_size": 8, "max_length": 512, "group_by_length": True,
                   "seed": int(seed)},
        "training": {"steps": 187, "loss": 1.2345, "table_ratio": 0.5 if arm.endswith("-ise") else None},
        "seconds": 7200.0, "versions": {"rolewise": "0.1.0", "torch": "2.13.0"},
        "runs": runs | (probes or {}),
    }  # fmt: skip


def write(folder: Path, *contents: Stored) -> list[Result]:
    folder.mkdir(parents=True, exist_ok=True)
    for one in contents:
        (folder / f"{one['variant']}-{one['arm']}-{one['seed']}.json").write_text(json.dumps(one))
    return read_results(folder)


WEAK = {"naive": 10, "ignore": 10, "escape_separation": 10, "completion_real": 20}
STRONG = {"naive": 5, "ignore": 5, "escape_separation": 5, "completion_real": 10}
"""Attack success on average 62.5 % and 31.25 %: half of it."""


def clean_pair(folder: Path) -> list[Result]:
    return write(folder, stored("clean/delimiter/0", WEAK, rouge=0.5),
                 stored("clean/delimiter-ise/0", STRONG, rouge=0.502, ceiling=17))  # fmt: skip


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines]


def row(text: str, *begins: str) -> list[str]:
    """The first row of a table whose cells begin so, without them."""
    return next(one[len(begins) :] for one in rows_of(text) if tuple(one[: len(begins)]) == begins)


def change(one: Stored, path: str, value: Any) -> Stored:
    *parents, last = path.split(".")
    found = one
    for name in parents:
        found = found[name]
    found[last] = value
    return one
