"""Does an architecture keep packed documents apart? Asked of the model itself, not of a list."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.loss import evaluating

_FIRST, _SECOND = 9, 7
_FP32_ROUNDING, _COARSE_ROUNDING = 1e-5, 5e-2
"""How far two computations of the same hidden states in other shapes may differ, relative to their norm (SmolLM2-135M:
1e-6 in fp32, 1.5e-2 in bf16)."""


def separates_documents(model: SegmentedCausalLM) -> bool:
    """Whether documents in one packed row do not see each other, and are what they are alone."""
    return _mixing(model) is None


def require_packing(model: SegmentedCausalLM) -> None:
    """Check that a document in a packed row gives the hidden states that it gives alone.

    Raises:
        ValueError: when this model mixes packed documents.
    """
    if mixing := _mixing(model):
        raise ValueError(
            f"{type(model).__name__} (attention: {getattr(model.config, '_attn_implementation', None)}) mixes packed "
            f"documents: {mixing}; turn off packing and use group_by_length instead"
        )


def document_leak(model: SegmentedCausalLM) -> float:
    """How much a packed document depends on the one before it, relative to how much it depends on itself.

    transformers makes attention block-diagonal from `position_ids` that start anew, for the architectures and
    attention kernels that know how; others let one document read the one before, and short convolutions read its last
    tokens. The measure is a derivative, that of the second document's hidden states by the first one's embeddings.
    Without a path between the two it is exactly 0, in every dtype and however rounding falls; a comparison of hidden
    states would lose a small leak in the rounding of bf16.
    """
    ids_BS, segments_BS, positions_BS = _two_documents(model)
    embedded: list[torch.Tensor] = []

    def begin_here(_module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = model.get_input_embeddings().register_forward_hook(begin_here)
    try:
        with evaluating(model), torch.enable_grad():
            hidden = _hidden(model, ids_BS, segments_BS, positions_BS)[:, _FIRST:]
    finally:
        handle.remove()
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(hidden.shape, generator=generator).to(hidden)
    (gradient,) = torch.autograd.grad(hidden, embedded[0], direction)
    # reshape: some backbones flatten leading dimensions before they embed.
    by_first, by_second = gradient.double().reshape(_FIRST + _SECOND, -1).split((_FIRST, _SECOND))
    return float(by_first.norm() / by_second.norm().clamp_min(1e-300))


@torch.no_grad()
def difference_from_alone(model: SegmentedCausalLM) -> float:
    """How far a document's hidden states in a packed row are from those of the document alone, relative to their norm.

    Besides a leak this shows positions that go on counting. It is as coarse as the rounding of the model's dtype.
    """
    ids_BS, segments_BS, positions_BS = _two_documents(model)
    with evaluating(model):
        packed = _hidden(model, ids_BS, segments_BS, positions_BS)[:, _FIRST:]
        alone = _hidden(model, ids_BS[:, _FIRST:], segments_BS[:, _FIRST:], positions_BS[:, _FIRST:])
    return float((packed - alone).double().norm() / alone.double().norm().clamp_min(1e-300))


def _mixing(model: SegmentedCausalLM) -> str | None:
    """What is wrong with packing for this model, if anything; NaN is wrong too."""
    leak = document_leak(model)
    if leak != 0:
        return f"the derivative of one by the text of the document before it is {leak:.2g} of that by its own, not 0"
    dtype = cast("nn.Embedding", model.get_input_embeddings()).weight.dtype
    rounding = _FP32_ROUNDING if dtype == torch.float32 else _COARSE_ROUNDING
    difference = difference_from_alone(model)
    if not difference <= rounding:
        return f"hidden states differ by {difference:.2g} from those of the document alone"
    return None


def _two_documents(model: SegmentedCausalLM) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, segments and positions, each [1, seq], of a packed row of two random documents."""
    embedding = cast("nn.Embedding", model.get_input_embeddings())
    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(0, embedding.weight.shape[0], (1, _FIRST + _SECOND), generator=generator)
    ids_BS = ids_BS.to(embedding.weight.device)
    positions_BS = torch.tensor([[*range(_FIRST), *range(_SECOND)]], device=ids_BS.device)
    return ids_BS, torch.full_like(ids_BS, model.role_scheme.output), positions_BS


def _hidden(
    model: SegmentedCausalLM, ids_BS: torch.Tensor, segments_BS: torch.Tensor, positions_BS: torch.Tensor
) -> torch.Tensor:
    backbone: Any = model.base_model
    return backbone(input_ids=ids_BS, segment_ids=segments_BS, position_ids=positions_BS, use_cache=False)[0]
