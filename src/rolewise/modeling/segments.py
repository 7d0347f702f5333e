"""The segment table and how its rows reach the token embeddings.

Two hooks carry the roles, whatever the architecture: a pre-hook on the backbone takes `segment_ids` out of the
call and looks up their rows, and a hook on the input embedding adds them to its output (the pattern that NEFTune
uses). The hooks sit on the backbone, not in `ForCausalLM.forward`, because trainers with a fused LM head call the
backbone directly. A last hook on the backbone fails when the rows were not used: never "no roles" in silence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn


class SegmentEmbedding(nn.Embedding):
    """The H x D table of the method, one row a role, always in fp32 (ISE paper, section 4).

    A bf16 table does not train: at usual learning rates nearly half of its entries never move. So casting the
    model (`model.to(torch.bfloat16)`, `model.half()`) moves this table but leaves its precision alone.
    """

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> SegmentEmbedding:
        def keep_precision(tensor: torch.Tensor) -> torch.Tensor:
            applied = fn(tensor)
            if applied.dtype == tensor.dtype or not applied.is_floating_point():
                return applied
            return tensor.to(applied.device)

        super()._apply(keep_precision, recurse)
        return self


class _Handover(threading.local):
    """What one step of a call leaves for the next, in slots of its own for each thread.

    Two threads which share a model could swap roles otherwise.
    """

    rows: torch.Tensor | None = None
    """From the backbone's pre-hook to the embedding's hook: [batch, seq, hidden]."""
    segment_ids: torch.Tensor | None = None
    """From the model's forward to the backbone's pre-hook, for bases that do not pass unknown arguments on."""
    awaited: bool = False
    """Whether a model's forward is under way and has not come to the backbone yet."""


_handover = _Handover()


def check_segment_ids(
    segment_ids: object, shape: tuple[int, ...], num_segments: int, *, check_range: bool
) -> torch.Tensor:
    """Return `segment_ids` when they are usable, [batch, seq] integers in 0..H-1.

    Raises:
        ValueError: when they are missing, of another shape than the tokens, or out of range.
        TypeError: when they are not a tensor of integers.
    """
    if segment_ids is None:
        raise ValueError(
            "segment_ids are missing: a Rolewise model must be told the role of every token. Build the inputs "
            "with rolewise.encode(tokenizer, messages, return_tensors='pt') and pass the whole batch, "
            "model(**batch) or model.generate(**batch); for the bare model set model.segment_scale = 0."
        )
    if not isinstance(segment_ids, torch.Tensor):
        raise TypeError(
            f"segment_ids must be a tensor of integers, not {type(segment_ids).__name__}; "
            "rolewise.encode(..., return_tensors='pt') makes one"
        )
    if segment_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"segment_ids must be int64 or int32, not {segment_ids.dtype}; call segment_ids.long()")
    if tuple(segment_ids.shape) != shape:
        raise ValueError(
            f"segment_ids have shape {list(segment_ids.shape)} but the tokens have shape {list(shape)}; "
            "every token needs one segment id: build both with rolewise.encode, and pad both on the same side"
        )
    if check_range and segment_ids.is_meta:
        raise ValueError(
            "segment_ids are on the meta device, so they have no values; build them with rolewise.encode, and move "
            "them to the model's device"
        )
    if check_range and segment_ids.numel():
        low, high = (int(bound) for bound in torch.aminmax(segment_ids))
        if low < 0 or high >= num_segments:
            raise ValueError(
                f"segment_ids hold {low if low < 0 else high}, outside of 0..{num_segments - 1}; "
                f"this model has {num_segments} segments (model.config.segment_scheme)"
            )
    return segment_ids


def forward_with_segments(
    base_forward: Callable[..., Any], model: Any, segment_ids: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the forward of a `...ForCausalLM` such that `segment_ids` reach the backbone's pre-hook.

    Raises:
        RuntimeError: when the pre-hook did not run, because this architecture goes past its backbone.
    """
    _handover.segment_ids, _handover.awaited = segment_ids, True
    try:
        output = base_forward(model, *args, **kwargs)
        if _handover.awaited:
            raise RuntimeError(
                f"{type(model).__name__} did not call its backbone, so the roles were not applied; "
                "Rolewise does not support this architecture yet"
            )
    finally:
        _handover.segment_ids, _handover.awaited = None, False
    return output


def lookup_segments(owner: Any, backbone: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pre-hook of the backbone: take `segment_ids` out of the call and look up their rows.

    `owner` is the model that has the table. With `inputs_embeds` the rows are added here, since the embedding
    module is not called then.
    """
    segment_ids = kwargs.pop("segment_ids", None)
    if segment_ids is None:
        segment_ids = _handover.segment_ids
    _handover.segment_ids, _handover.awaited = None, False
    embeds = kwargs.get("inputs_embeds")
    tokens = args[0] if args else kwargs.get("input_ids")
    if embeds is not None:
        shape, device = tuple(embeds.shape[:-1]), embeds.device
    elif isinstance(tokens, torch.Tensor):
        shape, device = tuple(tokens.shape), tokens.device
    else:
        raise ValueError("pass input_ids or inputs_embeds, [batch, seq, ...], along with segment_ids")
    scale = float(owner.segment_scale)
    if scale == 0.0 and segment_ids is None:  # the bare model needs no roles
        _handover.rows = None
        return args, kwargs
    # The range is checked where that costs no device sync; elsewhere the lookup itself fails on a bad index.
    check_range = device.type == "cpu" and not torch.compiler.is_compiling()
    segment_ids = check_segment_ids(segment_ids, shape, owner.num_segments, check_range=check_range)
    if scale == 0.0:
        _handover.rows = None
        return args, kwargs
    rows = owner.segment_embedding(segment_ids)
    if scale != 1.0:
        rows = rows * scale
    if embeds is not None:
        kwargs["inputs_embeds"] = embeds + rows.to(embeds.device, embeds.dtype)
        rows = None
    _handover.rows = rows
    return args, kwargs


def add_segments(embedding: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    """Hook of the input embedding: add the rows that the backbone's pre-hook looked up, [batch, seq, hidden].

    A plain function without a reference to the model, so that a copy of the embedding (PEFT makes some) does not
    copy the model.
    """
    rows = _handover.rows
    if rows is None:
        return output
    _handover.rows = None
    # view_as: some backbones flatten leading dimensions before they embed.
    return output + rows.to(output.device, output.dtype).view_as(output)


def check_segments_used(backbone: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Hook of the backbone: the rows must have been added, or this architecture embeds its tokens elsewhere.

    It runs after a failed call too (with no output), so that the rows never wait for somebody else's call.
    """
    unused = _handover.rows is not None
    _handover.rows = None
    if unused and output is not None:
        raise RuntimeError(
            f"{type(backbone).__name__} did not call its input embedding, so the roles were not applied; an adapter "
            "took its place (PEFT's trainable_token_indices), or Rolewise does not support this architecture yet"
        )


def hook_embedding(embedding: nn.Module) -> None:
    """Install `add_segments` once on an input embedding (again after the vocabulary was resized)."""
    if add_segments not in embedding._forward_hooks.values():
        embedding.register_forward_hook(cast("Any", add_segments))
