"""What a run says of itself before it begins."""

from __future__ import annotations

from typing import Any

import torch

from rolewise.modeling import SegmentedCausalLM
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


def dtype_hint(config: TrainConfig, device: torch.device) -> str | None:
    """A line for whoever trains in fp32 on a processor that computes in bf16, which was half the time here."""
    if config.dtype != "fp32" or device.type != "cpu" or not computes_in_bf16():
        return None
    return "this processor computes in bf16: dtype: mixed (--dtype mixed) may halve the time, and keeps fp32 weights"


def computes_in_bf16() -> bool:
    """Whether the CPU has instructions for it; elsewhere bf16 is slower than fp32."""
    # Older versions of PyTorch cannot tell.
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
