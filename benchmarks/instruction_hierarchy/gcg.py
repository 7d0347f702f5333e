"""GCG on models side by side: success over steps, in numbers that hold no text of the corpus.

python -m benchmarks.instruction_hierarchy.gcg base=smollm2-135m delimiter=runs/delimiter ise=runs/ise
python -m benchmarks.instruction_hierarchy.gcg --report     # figure, CSV and table from the results there are

Each of the first `--rows` rows of AlpacaEval that have an input gets the naive attack in its data, and behind it a
suffix that GCG optimises: 50 steps of 32 candidates, a small budget (the papers have 500 of 512). Every step is kept in
`--state`, so that a killed run goes on; `--results` gets one file a model. Optimised attacks break nearly every model
in the end: what can be compared is how soon.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.steps import write_result
from rolewise.adaptive import CurvePoint, Trajectory, success_figure, success_over_budget, write_curves
from rolewise.adaptive.gcg import GCGConfig, Step, gcg
from rolewise.attacks import make_attack, payload_named
from rolewise.commands.answer_file import model_stamp
from rolewise.evaluation.store import AnswerStore
from rolewise.evaluation.testsets import load_test_samples
from rolewise.modeling import load
from rolewise.modeling.loading import has_table
from rolewise.samples import to_messages

HERE = Path(__file__).parent
TEST = HERE.parents[2] / "shared/data/eval/alpacaeval805_davinci003.json"
RESULTS = HERE / "results-gcg"
STATE = Path("runs/gcg-state.jsonl")


def measure(label: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Attack a model, and say how each row went.

    Args:
        label: what it is called in tables.
        name: a directory, hub id or packaged model.
        options: of the command line.
    """
    from tqdm import tqdm

    model, tokenizer = load(name)
    model.eval()
    if not has_table(name):  # the one that `load` made is random
        model.segment_scale = 0.0
    config = GCGConfig(
        steps=options.steps, candidates=options.candidates, suffix_tokens=options.suffix_tokens,
        check_every=options.check_every, seed=options.seed, criterion=options.criterion,
    )  # fmt: skip
    payload = payload_named(options.payload)
    samples = load_test_samples(str(options.data), payload, options.rows)
    store, found = AnswerStore(options.state), list[Trajectory]()
    began = time.perf_counter()
    with tqdm(total=len(samples) * (config.steps + 1), desc=f"gcg {label}", unit="step", dynamic_ncols=True) as bar:
        for number, sample in enumerate(samples, 1):
            attacked = make_attack("naive")(sample, Random(f"rolewise-gcg:{options.seed}:{sample.id}"))

            def told(step: Step) -> None:
                bar.update()
                bar.set_postfix(loss=f"{step.loss:.3f}", best=f"{step.best:.3f}", refresh=False)

            done = gcg(
                model, tokenizer, to_messages(attacked, answer=False), witness=payload.witness, config=config,
                batch_size=options.batch_size, store=store, identity=[name, model_stamp(name)], told=told,
            )  # fmt: skip
            found.append(done.trajectory)
            bar.update(number * (config.steps + 1) - bar.n)
    store.close()
    return {
        "label": label,
        "model": Path(name).name,
        "table": has_table(name),
        "data": Path(options.data).name,
        "payload": options.payload,
        "ids": [sample.id for sample in samples],
        "trajectories": [one.numbers() for one in found],
        "seconds": round(time.perf_counter() - began, 1),
        "versions": {package: version(package) for package in ("rolewise", "torch", "transformers")},
    }


def curve_of(result: Mapping[str, Any]) -> list[CurvePoint]:
    """Success over steps of a result."""
    return success_over_budget([Trajectory.from_dict(one) for one in result["trajectories"]])


def report(results: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """Figure and CSV into `folder`; the table, in Markdown.

    Raises:
        ValueError: when the results are of different settings, so that their curves have no common axis.
    """
    kinds = {json.dumps([one["payload"], one["data"], one["ids"], _settings(one)]) for one in results}
    if len(kinds) > 1:
        raise ValueError(f"the results in {folder} are of different rows or settings; give each a --results of its own")
    curves = {one["label"]: curve_of(one) for one in results}
    first = results[0]
    settings = _settings(first)
    note = (
        f"{len(first['ids'])} rows of {first['data']}, payload {first['payload']}, naive attack and a suffix of "
        f"{settings['suffix_tokens']} tokens, {settings['candidates']} candidates a step, tried every "
        f"{settings['check_every']} steps, seed {settings['seed']}. Bands: Wilson, 95 %."
    )
    drawn = success_figure("gcg", "GCG: attack success over steps", curves, unit="steps", note=note)
    for suffix, content in ((".svg", drawn.svg), (".png", drawn.png)):
        (folder / f"gcg{suffix}").write_bytes(content)
    write_curves(folder / "gcg.csv", curves, unit="steps")
    lines = ["| model | at step 0 | at half | at the end | loss, first | loss, best |", "|---|---|---|---|---|---|"]
    for one in results:
        curve, runs = curves[one["label"]], [Trajectory.from_dict(run) for run in one["trajectories"]]
        half = max((point for point in curve if 2 * point.budget <= curve[-1].budget), key=lambda point: point.budget)
        shares = " | ".join(f"{point.share.percent()} %" for point in (curve[0], half, curve[-1]))
        begin = sum(run.losses[0] for run in runs) / len(runs)
        best = sum(min(run.losses) for run in runs) / len(runs)
        lines.append(f"| {one['label']} | {shares} | {begin:.2f} | {best:.2f} |")
    return "\n".join([*lines, "", note, ""])


def _settings(result: Mapping[str, Any]) -> dict[str, Any]:
    first = result["trajectories"][0]
    return {**first["settings"], "steps": first["budget"], "criterion": first["criterion"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="LABEL=MODEL", help="a model's name or directory, with its label")
    parser.add_argument("--data", default=TEST, help="an AlpacaEval-shaped file, or generated")
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--suffix-tokens", type=int, default=20)
    parser.add_argument("--check-every", type=int, default=5)
    parser.add_argument("--payload", default="hacked")
    parser.add_argument("--criterion", default="begins_with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--state", type=Path, default=STATE, help="keeps every step, so that a killed run goes on")
    parser.add_argument("--report", action="store_true", help="only make figure, CSV and table from the results")
    options = parser.parse_args(arguments)
    if not options.models and not options.report:
        parser.error("name at least one model, or --report")
    for given in options.models:
        label, _, name = given.rpartition("=")
        label = label or Path(name).name
        write_result(measure(label, name, options), options.results / f"{label}.json")
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.results.glob("*.json"))]
    if not stored:
        parser.error(f"no results in {options.results}")
    print(report(stored, options.results))


if __name__ == "__main__":
    main()
