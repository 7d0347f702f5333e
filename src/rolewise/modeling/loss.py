"""The training loss, with the LM head applied only where there are labels."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

IGNORED = -100


def labelled_loss(
    model: nn.Module, batch: Mapping[str, Any], num_items: int | torch.Tensor | None = None
) -> torch.Tensor:
    """Next-token cross-entropy over the labelled tokens of `batch`, a scalar.

    Equal to the loss of `model(**batch)`, but the LM head runs only at positions whose next token has a label. Half
    the tokens of an instruction row are prompt, and the head's [batch, seq, vocab] logits are most of the memory of
    training on a large vocabulary. Whatever the model does after its head (soft caps, scales) is kept.

    Args:
        model: a causal LM, wrapped (DDP, FSDP, PEFT) or not.
        batch: its inputs, with `labels` [batch, seq], -100 where there is nothing to learn.
        num_items: what the summed loss is divided by; the batch's own number of labels when None.

    Raises:
        ValueError: when the batch has no labels, or none of them counts.
    """
    inputs = dict(batch)
    labels = inputs.pop("labels", None)
    if labels is None:
        raise ValueError("the batch has no labels; rolewise.RoleCollator makes them from each row's loss mask")
    targets = labels[:, 1:]
    wanted = targets != IGNORED
    targets = targets[wanted]
    if not targets.numel():
        raise ValueError(
            "no token of the batch has a label, so there is nothing to learn; rows need an assistant message that "
            "is not cut off by max_length"
        )
    with head_only_at(model, wanted):
        logits = model(**inputs, use_cache=False).logits
    loss = nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets, reduction="sum")
    return loss / (targets.numel() if num_items is None else num_items)


@contextmanager
def head_only_at(model: nn.Module, wanted: torch.Tensor) -> Generator[None]:
    """Within, the LM head sees only the hidden states where `wanted` [batch, seq - 1] is true, as [1, count]."""

    def select(head: nn.Module, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        hidden = args[0][:, :-1]
        return (hidden[wanted.to(hidden.device)].unsqueeze(0), *args[1:])

    handle = _output_head(model).register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def _output_head(model: nn.Module) -> nn.Module:
    while not hasattr(model, "get_output_embeddings") and hasattr(model, "module"):
        model = model.module  # pyright: ignore[reportAssignmentType]
    head = model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    assert isinstance(head, nn.Module)
    return head
