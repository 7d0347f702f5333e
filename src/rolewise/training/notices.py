"""What a run says of itself before it begins."""

from __future__ import annotations

import torch

from rolewise.modeling import SegmentedCausalLM
from rolewise.processor import SLOW_BF16, computes_in_bf16
from rolewise.training.config import TrainConfig


def table_report(config: TrainConfig, model: SegmentedCausalLM) -> str:
    """The table's size beside the embeddings', and how fast it learns."""
    if not config.ise:
        return "delimiter arm: no segment embeddings (the table is zero and frozen, segment_scale is 0)"
    table = model.segment_embedding.weight
    rms = float(table.detach().float().pow(2).mean().sqrt())
    return (
        f"segment table {table.shape[0]} x {table.shape[1]}: RMS {rms:.4f}, {model.segment_ratio():.3f} of the token "
        f"embeddings'; learning rate {config.learning_rate * config.table_lr_multiple:.2g} "
        f"({config.table_lr_multiple:g} x {config.learning_rate:.2g})"
    )


def dtype_hint(config: TrainConfig) -> str | None:
    """A line for whoever trains on a CPU in the dtype that is slower there."""
    on_cpu = config.cpu or not torch.accelerator.is_available()
    if not on_cpu or (able := computes_in_bf16()) is None:
        return None
    if config.dtype != "fp32":
        return None if able else f"{SLOW_BF16}; use dtype: fp32 (--dtype fp32)"
    if able:
        return (
            "this processor computes in bf16: dtype: mixed (--dtype mixed) may halve the time, and keeps fp32 weights"
        )
    return None
