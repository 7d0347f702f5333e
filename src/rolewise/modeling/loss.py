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

    Equal to the loss of `model(**batch)` (see `require_next_token_loss`), but the LM head runs only at positions whose
    next token has a label. Half the tokens of an instruction row are prompt, and the head's [batch, seq, vocab] logits
    are most of the memory of training on a large vocabulary. Whatever the model does after its head (soft caps,
    scales) is kept.

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


@torch.no_grad()
def require_next_token_loss(model: nn.Module) -> None:
    """Refuse a model that is trained on another loss than `labelled_loss`, by asking both for a small random batch.

    A few architectures in transformers leave the shift by one to the caller (TrOCR, XLM), and some add a term.

    Args:
        model: a segmented causal LM with its weights (nothing is checked on the meta device), not sharded yet.

    Raises:
        ValueError: when the two differ.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return
    embedding: Any = model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(embedding.weight.shape[0], (1, 16), generator=generator).to(embedding.weight.device)
    batch = {"input_ids": ids_BS, "segment_ids": torch.zeros_like(ids_BS), "labels": ids_BS}
    with evaluating(model):
        own, ours = model(**batch, use_cache=False).loss, labelled_loss(model, batch)
    if own is None or not own.isfinite():
        return
    tolerance = 1e-3 if embedding.weight.dtype == torch.float32 else 3e-2
    equal = abs(own - ours) <= tolerance * max(1.0, abs(ours))
    router = getattr(getattr(model, "config", None), "output_router_logits", False)  # adds a term, if a small one
    if equal and not router:
        return
    raise ValueError(
        f"{type(model).__name__} has a loss of its own, {own:.6g} where the cross-entropy of the next token is "
        f"{ours:.6g} on the same tokens, so it cannot be trained as a causal language model; "
        + ("set output_router_logits=False in its configuration" if router else "use another architecture")
    )


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Within, nothing is dropped at random; then each module is again as it was (one may be kept from training)."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


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
