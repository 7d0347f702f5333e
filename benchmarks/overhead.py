"""What roles cost: ours against the bare model, interleaved in one process. Run by `make bench`.

python -m benchmarks.overhead                 # everything, about 25 minutes on 2 cores
python -m benchmarks.overhead --only encode   # one part: forward, step, generate, train, encode, memory, start
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

import rolewise as rw
from benchmarks.measure import Ratio, compare, seconds, write
from rolewise.modeling import load_tokenizer
from rolewise.training.packing import separates_documents
from rolewise.training.trainer import RoleTrainer, default_collator

ALPACA = Path(__file__).parents[2] / "shared/data/sft/alpaca_5000.json"


def models(name: str) -> tuple[Any, Any]:
    """Ours and the bare model, with the same weights; the table is not zero, so its work is done."""
    if name == "tiny":
        torch.manual_seed(0)
        bare = AutoModelForCausalLM.from_config(
            LlamaConfig(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
        )  # fmt: skip
        return rw.attach(copy.deepcopy(bare).eval()), bare.eval()
    ours = rw.load_model("smollm2-135m")
    from rolewise.modeling.loading import _resolve

    return ours.eval(), AutoModelForCausalLM.from_pretrained(_resolve(name), dtype=torch.float32).eval()


def random_batch(model: Any, batch: int, seq: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "input_ids": torch.randint(5, model.config.vocab_size, (batch, seq), generator=generator),
        "segment_ids": torch.randint(0, 4, (batch, seq), generator=generator).sort(dim=1).values,
        "attention_mask": torch.ones((batch, seq), dtype=torch.long),
    }


def without_roles(batch: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in batch.items() if key != "segment_ids"}


def forward(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    ours, bare = models(name)
    batch = random_batch(bare, 8, 128)
    plain = without_roles(batch)
    with torch.no_grad():
        yield compare(lambda: ours(**batch), lambda: bare(**plain), work="forward, batch 8 x 128",
                      model=name, target=1.01, judged=judged, pairs=pairs)  # fmt: skip


def step(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    """Forward, backward and optimizer step; both take the model's own loss."""
    ours, bare = models(name)
    batch = random_batch(bare, 4, 128)

    def training(model: Any, inputs: dict[str, Any]) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

        def work() -> None:
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return work

    yield compare(training(ours.train(), batch), training(bare.train(), without_roles(batch)),
                  work="training step, batch 4 x 128, same loss path", model=name, target=1.02, judged=judged,
                  pairs=pairs)  # fmt: skip


def generate(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    ours, bare = models(name)
    batch = random_batch(bare, 16, 32)
    options: dict[str, Any] = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    plain = without_roles(batch)
    yield compare(lambda: ours.generate(**batch, **options), lambda: bare.generate(**plain, **options),
                  work="generate, batch 16, 32 + 64 tokens, KV cache", model=name, target=1.02, judged=judged,
                  pairs=pairs)  # fmt: skip


def alpaca_conversations(count: int) -> list[list[dict[str, str]]]:
    if not ALPACA.exists():
        raise SystemExit(f"the training and encoding benchmarks read {ALPACA}, which is not there")
    rows = json.loads(ALPACA.read_text())
    rows = random.Random("benchmark").sample([row for row in rows if len(row["output"]) < 1000], count)
    return [
        [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": row["instruction"]},
            *([{"role": "data", "content": row["input"]}] if row["input"] else []),
            {"role": "assistant", "content": row["output"]},
        ]
        for row in rows
    ]


def train(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    """Steps of `RoleTrainer` against steps of plain `Trainer` on the same rows, with equal loss."""
    if name == "tiny":
        return
    ours, bare = models(name)
    torch.nn.init.zeros_(ours.segment_embedding.weight)  # so that both losses are equal
    tokenizer = load_tokenizer(name)
    features = []
    for conversation in alpaca_conversations(4 * (pairs + 2)):
        row = rw.render(tokenizer, conversation)
        labels = [token if keep else -100 for token, keep in zip(row.input_ids, row.loss_mask, strict=True)]
        features.append({"input_ids": row.input_ids, "segment_ids": row.segment_ids, "labels": labels})
    # Ours batches rows as `rolewise train` does; plain `Trainer` pads them, as its own collators do.
    collators = [
        default_collator(tokenizer, ours, padding_free=separates_documents(ours)), default_collator(tokenizer, ours)
    ]  # fmt: skip
    labelled = sum(label != -100 for row in features for label in row["labels"])
    tokens = sum(len(row["labels"]) for row in features)
    args = TrainingArguments(output_dir="runs/bench", report_to="none", use_cpu=True, remove_unused_columns=False)
    arms = [RoleTrainer(model=ours, args=args, data_collator=collators[0]), Trainer(model=bare, args=args)]
    losses: list[list[float]] = [[], []]

    def stepper(arm: int) -> Callable[[], None]:
        trainer: Any = arms[arm]
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.0)  # so that every loss stays comparable
        turn = iter(range(0, len(features), 4))

        def work() -> None:
            at = next(turn)
            batch = collators[arm](features[at : at + 4])
            inputs = batch if arm == 0 else without_roles(batch)
            count = (batch["labels"][:, 1:] != -100).sum()
            losses[arm].append(float(trainer.training_step(trainer.model, dict(inputs), count)))
            optimizer.step()
            optimizer.zero_grad()

        return work

    work = (
        f"training tokens/s, head only at labels ({labelled / tokens:.0%} of tokens) and no padding, against plain "
        "Trainer, 4 Alpaca rows a step"
    )
    ratio = compare(stepper(0), stepper(1), work=work, model=name, target=1.2, judged=judged, pairs=pairs,
                    higher_is_better=True)  # fmt: skip
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=1e-4)
    yield ratio


def encode(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    if name == "tiny":
        return
    tokenizer: Any = load_tokenizer(name)
    conversations = alpaca_conversations(1000)
    yield compare(
        lambda: [rw.encode(tokenizer, conversation) for conversation in conversations],
        lambda: [tokenizer.apply_chat_template(conversation, tokenize=True) for conversation in conversations],
        work="rw.encode against apply_chat_template(tokenize=True), 1,000 conversations, one thread",
        model=name, target=1.5, judged=judged, pairs=pairs,
    )  # fmt: skip


MEMORY_PROBE = """
import resource, sys, torch
from benchmarks.overhead import models, random_batch, without_roles
ours, bare = models("smollm2-135m")
model = ours if sys.argv[1] == "ours" else bare
del ours, bare
batch = random_batch(model, 4, 128)
batch = batch if sys.argv[1] == "ours" else without_roles(batch)
optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-6)
for _ in range(3):
    model(**batch, labels=batch["input_ids"]).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def memory(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    """Peak resident memory of a process that trains three steps; pairs of fresh processes."""
    if name == "tiny":
        return
    import statistics

    from benchmarks.measure import bootstrap_median

    peaks = {"ours": [], "bare": []}
    for _ in range(5):
        for arm, values in peaks.items():
            done = subprocess.run([sys.executable, "-c", MEMORY_PROBE, arm], capture_output=True, text=True, check=True)
            values.append(float(done.stdout))
    ratios = [ours / bare for ours, bare in zip(peaks["ours"], peaks["bare"], strict=True)]
    low, high = bootstrap_median(ratios)
    yield Ratio(
        work="peak memory of training, same loss path", model=name, ratio=statistics.median(ratios), low=low,
        high=high, pairs=len(ratios), ours=statistics.median(peaks["ours"]), bare=statistics.median(peaks["bare"]),
        unit="GiB", target=1.01, judged=judged,
    )  # fmt: skip


def start(name: str, judged: bool, pairs: int) -> Iterator[Ratio]:
    """Start-up of a process, in seconds (the column `ratio` is the seconds themselves; bare is `python -c pass`)."""
    if name == "tiny":
        return
    import statistics

    from benchmarks.measure import bootstrap_median

    nothing = [seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(pairs)]
    command = str(Path(sys.executable).parent / "rolewise")
    for work, call in (
        ("import rolewise, seconds", [sys.executable, "-c", "import rolewise"]),
        ("rolewise --help, seconds", [command, "--help"]),
    ):
        times = [seconds(lambda call=call: subprocess.run(call, check=True, capture_output=True)) for _ in range(pairs)]
        low, high = bootstrap_median(times)
        yield Ratio(work=work, model="none", ratio=statistics.median(times), low=low, high=high, pairs=pairs,
                    ours=statistics.median(times), bare=statistics.median(nothing), unit="s", target=0.5,
                    judged=judged)  # fmt: skip


PARTS = {
    "forward": forward, "step": step, "generate": generate, "train": train, "encode": encode, "memory": memory,
    "start": start,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure just this part (may be repeated)")
    parser.add_argument("--pairs", type=int, default=20, help="timed pairs of each work")
    options = parser.parse_args()
    for part in options.only or PARTS:
        ratios: list[Ratio] = []
        for name, judged in (("smollm2-135m", True), ("tiny", False)):
            for ratio in PARTS[part](name, judged, options.pairs):
                print(
                    f"{ratio.work} [{ratio.model}]: {ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})", flush=True
                )
                ratios.append(ratio)
        # Part by part, so that nothing is lost when a later one is killed.
        write("overhead", part, ratios, f"python -m benchmarks.overhead --only {part}", order=list(PARTS))


if __name__ == "__main__":
    main()
