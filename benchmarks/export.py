"""What exports cost in size and rounding, by form, dtype and head. About 5 minutes on 2 cores.

python -m benchmarks.export                    # SmolLM2-135M with a random table, an eighth of its embeddings' RMS
python -m benchmarks.export --model runs/ise   # a trained model
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import rolewise as rw
from rolewise.export import ExportResult, export_model

RESULTS = Path(__file__).parent / "results"
KINDS: tuple[dict[str, Any], ...] = (
    {"to": "hf", "dtype": "fp32"},
    {"to": "hf", "dtype": "fp16"},
    {"to": "hf", "dtype": "bf16"},
    {"to": "folded", "dtype": "fp32"},
    {"to": "folded", "dtype": "fp16"},
    {"to": "folded", "dtype": "bf16"},
    {"to": "folded", "dtype": "fp32", "head": "tied"},
    {"to": "folded", "dtype": "bf16", "head": "tied"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model with a trained table")
    name = parser.parse_args().model
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "model"
        if name is None:
            model, _ = rw.load("smollm2-135m", init_ratio=0.125)
            model.save_pretrained(source)
            del model
        found: list[tuple[dict[str, Any], ExportResult]] = []
        for kind in KINDS:
            print(" ".join(kind.values()), flush=True)
            result = export_model(name or source, Path(directory) / "out", overwrite=True, **kind)
            found.append((kind, dataclasses.replace(result, directory="out")))
    told = "SmolLM2-135M, random table" if name is None else Path(name).name
    record = [{**kind, **dataclasses.asdict(result)} for kind, result in found]
    (RESULTS / "export.json").write_text(json.dumps({"model": told, "exports": record}, indent=2) + "\n")
    (RESULTS / "export.md").write_text(table(told, found))


def table(name: str, found: list[tuple[dict[str, Any], ExportResult]]) -> str:
    first = found[0][1]
    lines = [
        "| form | dtype | head | weights | largest difference of a logit | mean | greedy answers that are the same |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, result in found:
        size = f"{result.bytes / 1e6:.0f} MB ({result.bytes / result.source_bytes - 1:+.0%})"
        total = result.total
        head = kind.get("head", "untied" if result.added_parameters else "as it was")
        lines.append(
            f"| {result.to} | {kind['dtype']} | {head} | {size} | {total.largest:.2g} | {total.mean:.2g} | "
            f"{total.same_answers} of {total.answers} |"
        )
    added = max(result.added_parameters for _, result in found)
    note = (
        f"\n{name}, {first.source_bytes / 1e6:.0f} MB in fp32; against the model itself, all computed in fp32. A head "
        f"of its own has {added:,} parameters.\n"
    )
    return "\n".join(lines) + "\n" + note


if __name__ == "__main__":
    main()
