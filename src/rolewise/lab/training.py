"""Pre-training without roles, then training with them through `rolewise.attach`: the product's own code path."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import torch

from rolewise.collation import NO_LABEL
from rolewise.lab.config import LENGTHS, LabConfig
from rolewise.lab.encoding import Encoded, encode_base, encode_row
from rolewise.lab.rows import TEST_USER, base_rows, training_rows
from rolewise.lab.vocabulary import BEGIN, END, ID, MARKS, PAD, SIZE
from rolewise.modeling import attach, labelled_loss

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

    from rolewise.modeling import SegmentedCausalLM

Progress = Callable[[int, float], None]
"""Called after each step with the steps done and the loss."""

_WARMUP = 0.05
_SHORTEST, _WHOLE_BATCH, _GROWTH = 8, 48, 0.55
_FORMAT = 2
"""Raise it when a change makes older pre-trained models wrong."""


def new_model(config: LabConfig) -> LlamaForCausalLM:
    """A small Llama with random weights; the seed decides them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=SIZE,
            hidden_size=config.hidden,
            intermediate_size=3 * config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=ID[PAD],
            bos_token_id=ID[BEGIN],
            eos_token_id=ID[END],
        )
    )


# --- pre-training ----------------------------------------------------------------------------------------------


def base_batch(config: LabConfig, step: int) -> dict[str, torch.Tensor]:
    """Rows of pre-training.

    Texts are short at first and grow, since a model finds out where to look much sooner in a short text. At last they
    are as long as the longest tests, so that no position is new to it in a test. Lengths are even on a log scale, and
    long texts come in smaller batches.
    """
    rng = Random(f"rolewise-lab-base:{config.seed}:{step}")
    growth = min(1.0, step / (_GROWTH * max(1, config.base_steps)))
    longest = LENGTHS[-1] * config.train_words + TEST_USER + 6
    length = round(_SHORTEST * (longest / _SHORTEST) ** (rng.random() * (0.1 + 0.9 * growth)))
    count = max(4, min(config.batch_size, config.batch_size * _WHOLE_BATCH // length))
    batch = to_batch([encode_base(*row) for row in base_rows(rng, count, length)])
    del batch["segment_ids"]
    return batch


def pretrain(config: LabConfig, progress: Progress | None = None) -> LlamaForCausalLM:
    """A base model that can do every task, and carries out any instruction wherever it stands."""
    model = new_model(config)
    groups = [{"params": list(model.parameters()), "lr": config.base_learning_rate}]
    _train(model, groups, config.base_steps, lambda step: base_batch(config, step), progress)
    return model


def base_model(config: LabConfig, cache: Path | None = None, progress: Progress | None = None) -> LlamaForCausalLM:
    """The pre-trained model of a configuration, from `cache` if it is there; its arms share it."""
    from transformers import LlamaForCausalLM

    if cache is None:
        return pretrain(config, progress)
    directory = cache / base_name(config)
    if directory.is_dir():
        return LlamaForCausalLM.from_pretrained(directory)
    model = pretrain(config, progress)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        model.save_pretrained(Path(scratch) / "model")
        if not directory.is_dir():  # another process may have been quicker
            os.replace(Path(scratch) / "model", directory)
    return model


def base_name(config: LabConfig) -> str:
    """A name for what decides the pre-trained model."""
    fields = ("seed", "base_steps", "base_learning_rate", "batch_size", "hidden", "layers", "heads", "train_words")
    said = ",".join(f"{name}={getattr(config, name)}" for name in fields)
    return f"base-{config.seed}-{sha256(f'{_FORMAT},{said}'.encode()).hexdigest()[:10]}"


# --- training with roles ---------------------------------------------------------------------------------------


def with_roles(base: LlamaForCausalLM, config: LabConfig) -> SegmentedCausalLM:
    """Attach the table in place. Arms without it keep it at scale 0, which is the bare model bit for bit."""
    if config.reserved_delimiters:
        with torch.no_grad():
            embedding: Any = base.get_input_embeddings()
            weight = embedding.weight
            for token, word in MARKS.items():
                weight[ID[token]] = weight[ID[word]]
    model = attach(base, init_std=config.init_std, init_ratio=config.init_ratio)
    if config.ise:
        # The rows at the start differ from seed to seed, as the rest does.
        with torch.no_grad():
            table = model.segment_embedding.weight
            drawn = torch.randn(table.shape, generator=torch.Generator().manual_seed(config.seed))
            table.copy_(drawn * table.std())
    else:
        model.segment_scale = 0.0
    return model


def role_batch(config: LabConfig, step: int) -> dict[str, torch.Tensor]:
    """Rows of training with roles; the same for each arm but for the headers' tokens."""
    rows = training_rows(config, step)
    return to_batch([encode_row(row, reserved=config.reserved_delimiters) for row in rows])


def train_roles(model: SegmentedCausalLM, config: LabConfig, progress: Progress | None = None) -> list[float]:
    """Train with roles, in place. Returns the loss of each step."""
    table = list(model.segment_embedding.parameters())
    rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in table)]
    groups: list[dict[str, Any]] = [{"params": rest, "lr": config.learning_rate}]
    if config.ise:
        groups.append({"params": table, "lr": config.learning_rate * config.lr_multiple})
    return _train(model, groups, config.steps, lambda step: role_batch(config, step), progress)


def to_batch(rows: Sequence[Encoded]) -> dict[str, torch.Tensor]:
    """[batch, seq] tensors. Answers differ in length, so they are padded on the right: nothing earlier sees that."""
    width = max(len(row.input_ids) for row in rows)
    columns: dict[str, list[list[int]]] = {"input_ids": [], "segment_ids": [], "labels": []}
    for row in rows:
        missing = width - len(row.input_ids)
        labels = [token if kept else NO_LABEL for token, kept in zip(row.input_ids, row.loss_mask, strict=True)]
        columns["input_ids"].append(row.input_ids + [ID[PAD]] * missing)
        columns["segment_ids"].append(row.segment_ids + [row.segment_ids[-1]] * missing)
        columns["labels"].append(labels + [NO_LABEL] * missing)
    return {name: torch.tensor(values) for name, values in columns.items()}


def _train(
    model: Any,
    groups: list[dict[str, Any]],
    steps: int,
    batch_of: Callable[[int], dict[str, torch.Tensor]],
    progress: Progress | None,
) -> list[float]:
    """AdamW with warm-up and a cosine down to a tenth, gradients clipped at 1."""
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)
    warmup = max(1, round(_WARMUP * steps))

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    model.train()
    losses: list[float] = []
    for step in range(steps):
        loss = labelled_loss(model, batch_of(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
    model.eval()
    return losses
