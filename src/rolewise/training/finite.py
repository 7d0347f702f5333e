"""A run that diverged stops at once and saves nothing more: a NaN, once in the weights, never leaves them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn


def require_finite_step(step: int, loss: Any, norm: Any, rates: tuple[float, float]) -> None:
    """Refuse to go on from a step whose loss or gradient is NaN or infinite.

    Args:
        step: its number, from 1.
        loss: of this process; a number, a scalar tensor, or None when it is not known.
        norm: of the gradient, over all processes; likewise.
        rates: the learning rates of the weights and of the table.

    Raises:
        ValueError: naming the step, both values, the learning rates and the remedy.
    """
    loss, norm = _number(loss), _number(norm)
    if math.isfinite(loss or 0.0) and math.isfinite(norm or 0.0):
        return
    said = " and ".join(
        f"{name} {value:.4g}" for name, value in (("loss", loss), ("gradient norm", norm)) if value is not None
    )
    raise ValueError(
        f"the training became NaN or infinite in step {step} ({said}) at a learning rate of {rates[0]:.3g}, "
        f"{rates[1]:.3g} for the table; the run stops before that step moves the weights. Lower learning_rate or "
        "table_lr_multiple, warm up for longer, or set max_grad_norm if it is 0, and name another output_dir"
    )


@torch.no_grad()
def all_finite(model: nn.Module) -> bool:
    """Whether every weight (of sharded ones, this process's part) is a finite number."""
    parts = [getattr(weight, "_local_tensor", weight) for weight in model.parameters()]
    flags = [torch.isfinite(part).all().cpu() for part in parts if part.is_floating_point() and part.numel()]
    return all(flags)


def _number(value: Any) -> float | None:
    return value.item() if isinstance(value, torch.Tensor) else value
