"""Rows per minute of our evaluation, against generation one row at a time without a cache.

python -m benchmarks.eval_throughput                # SmolLM2: 22 samples x 23 conditions, 10 rows one by one
python -m benchmarks.eval_throughput --samples 208  # the whole test set (about half an hour on 2 cores)

The rows are those of Structured Query: every sample clean, under 21 attacks, and with the payload in the user turn.
The slow way is how published evaluations do it (batch 1, everything computed again for each token); it is timed on a
few rows drawn at random, and takes hours on all of them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import rolewise as rw
from benchmarks.measure import machine
from rolewise.attacks import IN_DOMAIN_ATTACKS, OOD_ATTACKS, template_delimiters
from rolewise.data.structured_query import evaluation_conditions, load_samples
from rolewise.engine.batches import Engine
from rolewise.engine.decoding import Request
from rolewise.evaluation.judging import settled
from rolewise.generation import stop_token_ids

TEST_SET = Path(__file__).parents[2] / "shared/data/eval/alpacaeval805_davinci003.json"
RESULTS = Path(__file__).parent / "results" / "eval_throughput.json"
WINDOW = 256
"""Rows that are planned together, as the provider collects them."""


def requests_of(model: Any, tokenizer: Any, data: Path, samples: int, new_tokens: int) -> list[Request]:
    """The rows of so many samples, drawn at random, as the provider would ask for them."""
    chosen = load_samples(data)
    chosen = random.Random(0).sample(chosen, min(samples, len(chosen)))
    attacks = (*IN_DOMAIN_ATTACKS, *OOD_ATTACKS)
    rows = evaluation_conditions(chosen, attacks, seed=0, real=template_delimiters(tokenizer))
    found: list[Request] = []
    for row in rows:
        encoding = rw.render(tokenizer, row["messages"], add_generation_prompt=True, scheme=model.role_scheme)
        attacked = row["meta"]["domain"] not in ("clean", "ceiling")
        found.append(
            Request(
                input_ids=encoding.input_ids,
                segment_ids=encoding.segment_ids,
                max_new_tokens=new_tokens,
                settled=partial(settled, witness=row["meta"]["payload"]["witness"]) if attacked else None,
            )
        )
    return found


def ours(model: Any, tokenizer: Any, requests: list[Request], batch_size: int) -> tuple[float, dict[int, str]]:
    """Seconds for all rows, and their answers."""
    engine = Engine(model, tokenizer, batch_size=batch_size)
    answers: dict[int, str] = {}
    start = time.perf_counter()
    for at in range(0, len(requests), WINDOW):
        for index, answer in engine.answers(requests[at : at + WINDOW]):
            answers[at + index] = answer.text
    return time.perf_counter() - start, answers


def one_by_one(model: Any, tokenizer: Any, request: Request) -> tuple[float, str]:
    """Seconds for one row without a cache, to its full length, and its answer."""
    ids, segments = (torch.tensor([list(column)]) for column in (request.input_ids, request.segment_ids))
    start = time.perf_counter()
    with torch.no_grad():
        output = model.generate(
            input_ids=ids, segment_ids=segments, attention_mask=torch.ones_like(ids), use_cache=False, do_sample=False,
            max_new_tokens=request.max_new_tokens, eos_token_id=stop_token_ids(model, tokenizer),
            pad_token_id=tokenizer.pad_token_id or 0,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    return seconds, tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)


def measure(name: str, data: Path, *, samples: int, slow: int, batch_size: int, new_tokens: int) -> dict[str, Any]:
    """Both ways, on the same rows."""
    model, tokenizer = rw.load(name)
    model.eval()
    requests = requests_of(model, tokenizer, data, samples, new_tokens)
    one_by_one(model, tokenizer, requests[0])  # warm up
    seconds, answers = ours(model, tokenizer, requests, batch_size)
    drawn = random.Random(1).sample(range(len(requests)), min(slow, len(requests)))
    timed = {index: one_by_one(model, tokenizer, requests[index]) for index in drawn}
    fast = 60 * len(requests) / seconds
    each = statistics.mean(taken for taken, _ in timed.values())
    return {
        "model": name,
        "rows": len(requests),
        "prompt_tokens": sum(len(request.input_ids) for request in requests),
        "new_tokens": new_tokens,
        "batch_size": batch_size,
        "rows_per_minute": fast,
        "rows_per_minute_one_by_one": 60 / each,
        "rows_one_by_one": len(timed),
        "ratio": fast * each / 60,
        "minutes_for_208_samples": seconds / 60 * 208 / max(1, min(samples, 208)),
        # An answer that ended early is the beginning of the whole one.
        "same_answers": sum(text.startswith(answers[index]) for index, (_, text) in timed.items()),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", type=Path, default=TEST_SET)
    parser.add_argument("--samples", type=int, default=22)
    parser.add_argument("--slow", type=int, default=10, help="rows that are answered one by one")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    found = measure(
        given.model, given.data, samples=given.samples, slow=given.slow, batch_size=given.batch_size,
        new_tokens=given.new_tokens,
    )  # fmt: skip
    text = json.dumps(found, indent=2)
    print(text)
    if given.write:
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
