"""Does an architecture keep packed documents apart? Asked of the model itself, not of a list."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from rolewise.modeling import SegmentedCausalLM

_FIRST, _SECOND = 5, 7


@torch.no_grad()
def document_leak(model: SegmentedCausalLM) -> float:
    """How far a document's hidden states in a packed row are from those of the document alone, relative to their norm.

    transformers makes attention block-diagonal from `position_ids` that start anew, for the architectures and
    attention kernels that know how; others would let one document read the one before.
    """
    was_training = model.training
    model.eval()
    backbone: Any = model.base_model
    device = model.segment_embedding.weight.device
    vocabulary = cast("nn.Embedding", model.get_input_embeddings()).weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    ids_BS = torch.randint(0, vocabulary, (1, _FIRST + _SECOND), generator=generator).to(device)
    segments_BS = torch.full_like(ids_BS, model.role_scheme.output)
    positions_BS = torch.tensor([[*range(_FIRST), *range(_SECOND)]], device=device)
    packed = backbone(input_ids=ids_BS, segment_ids=segments_BS, position_ids=positions_BS, use_cache=False)[0]
    alone = backbone(
        input_ids=ids_BS[:, _FIRST:],
        segment_ids=segments_BS[:, _FIRST:],
        position_ids=positions_BS[:, _FIRST:],
        use_cache=False,
    )[0]
    model.train(was_training)
    return float((packed[:, _FIRST:] - alone).float().norm() / alone.float().norm().clamp_min(1e-6))


def separates_documents(model: SegmentedCausalLM) -> bool:
    """Whether documents in one packed row do not see each other."""
    dtype = cast("nn.Embedding", model.get_input_embeddings()).weight.dtype
    return document_leak(model) < (1e-3 if dtype == torch.float32 else 5e-2)


def require_packing(model: SegmentedCausalLM) -> None:
    """Check that a document in a packed row gives the hidden states that it gives alone.

    Raises:
        ValueError: when this model mixes packed documents.
    """
    if not separates_documents(model):
        raise ValueError(
            f"{type(model).__name__} (attention: {getattr(model.config, '_attn_implementation', None)}) mixes packed "
            f"documents: hidden states differ by {document_leak(model):.2g} from those of the document alone; "
            "turn off packing and use group_by_length instead"
        )
