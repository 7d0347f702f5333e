"""What flows through a model's blocks: hooks that keep what is asked for and let go of the rest at once.

Attention weights are reduced block by block, so that memory holds those of one block at a time; hidden states are
kept of the wanted tokens only. Nothing depends on the architecture but that the blocks stand in a list.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from rolewise.modeling import SegmentedCausalLM


@dataclass(frozen=True)
class BlockAttention:
    """Where one block looks from a row's answer, each [tokens], the mean over heads and over the answer's positions."""

    weights: torch.Tensor
    uniform: torch.Tensor
    """What attention would be that is spread evenly over the tokens in sight."""
    uniform_rest: torch.Tensor
    """The same over all but the row's first token."""


def blocks_of(model: SegmentedCausalLM) -> list[nn.Module]:
    """The blocks of a model, in order.

    Raises:
        ValueError: when the backbone has no list of them.
    """
    count = model.config.get_text_config().num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise ValueError(
        f"{type(model).__name__} does not keep its {count} blocks in one list, so its layers cannot be told apart; "
        "rolewise inspect-attention does not support this architecture yet"
    )


@contextmanager
def eager_attention(model: SegmentedCausalLM) -> Generator[None]:
    """Within, the model computes attention weights openly (faster implementations never form them)."""
    before, training = model.config._attn_implementation, model.training
    try:
        model.eval()
        model.set_attn_implementation("eager")
        yield
    finally:
        model.train(training)
        if model.config._attn_implementation != before:
            model.set_attn_implementation(cast("str", before))


def read_attention(
    model: SegmentedCausalLM, input_ids: Sequence[int], segment_ids: Sequence[int], queries: Sequence[int]
) -> dict[int, BlockAttention]:
    """Attention from some positions of one row, by block (from 1); blocks without attention weights are left out.

    Call it within `eager_attention`.
    """
    found: dict[int, BlockAttention] = {}
    size, rows = len(input_ids), torch.tensor(list(queries))

    def hook_of(number: int) -> Any:
        def hook(_: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            # The innermost module that returns the weights is first; those around it may pass them on.
            if number not in found and (weights := _square(output, size)) is not None:
                chosen = weights[0][:, rows.to(weights.device)].float()
                found[number] = _reduced(chosen, _visible([*args, *kwargs.values()], size, rows))

        return hook

    with _hooks() as handles:
        for number, block in enumerate(blocks_of(model), start=1):
            hook = hook_of(number)
            for module in block.modules():
                if module is not block:
                    handles.append(module.register_forward_hook(hook, with_kwargs=True))
        run_once(model, torch.tensor([list(input_ids)]), torch.tensor([list(segment_ids)]))
    return found


def read_hidden(
    model: SegmentedCausalLM,
    input_ids: torch.Tensor,
    segment_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    keep: torch.Tensor,
) -> torch.Tensor:
    """The hidden states of some tokens: what enters the first block, then what each block puts out.

    Args:
        model: the model.
        input_ids: [batch, seq].
        segment_ids: [batch, seq].
        attention_mask: [batch, seq].
        keep: the positions of the wanted tokens, [batch, kept].

    Returns:
        [blocks + 1, batch, kept, hidden], on the CPU, in the model's precision. The last is before the final norm.
    """
    blocks = blocks_of(model)
    states: dict[int, torch.Tensor] = {}
    shape = tuple(input_ids.shape)

    def take(number: int, tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 3 or tuple(tensor.shape[:2]) != shape:
            raise ValueError(
                f"block {number} of {type(model).__name__} does not pass on [batch, seq, hidden], so its hidden states "
                "cannot be probed; leave the probe out (--parts attention)"
            )
        places = keep.to(tensor.device)[..., None].expand(-1, -1, tensor.shape[-1])
        states[number] = tensor.gather(1, places).cpu()

    def enters(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        take(0, args[0] if args else kwargs.get("hidden_states"))

    def leaves(number: int) -> Any:
        return lambda _module, _args, output: take(number, output[0] if isinstance(output, tuple) else output)

    with _hooks() as handles:
        handles.append(blocks[0].register_forward_pre_hook(enters, with_kwargs=True))
        for number, block in enumerate(blocks, start=1):
            handles.append(block.register_forward_hook(leaves(number)))
        run_once(model, input_ids, segment_ids, attention_mask)
    return torch.stack([states[number] for number in range(len(blocks) + 1)])


def run_once(
    model: SegmentedCausalLM,
    input_ids: torch.Tensor,
    segment_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> None:
    """One pass without a cache, with the head over one position only."""
    import inspect

    options: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = 1
    if attention_mask is not None and not bool(attention_mask.all()):
        options["attention_mask"] = attention_mask.to(model.device)
    with torch.inference_mode():
        model(
            input_ids=input_ids.to(model.device), segment_ids=segment_ids.to(model.device), use_cache=False, **options
        )


@contextmanager
def _hooks() -> Generator[list[Any]]:
    handles: list[Any] = []
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


def _square(output: Any, size: int) -> torch.Tensor | None:
    """The attention weights in what a module returned, [1, heads, size, size], if they are there."""
    if not isinstance(output, tuple):
        return None
    for one in cast("tuple[Any, ...]", output)[1:]:
        if isinstance(one, torch.Tensor) and one.ndim == 4 and one.shape[0] == 1 and one.shape[2:] == (size, size):
            return one
    return None


def _visible(given: Sequence[Any], size: int, rows: torch.Tensor) -> torch.Tensor:
    """Which tokens each of `rows` may look at, [rows, size]: by the mask that the module got, else all before it."""
    for one in given:
        if isinstance(one, torch.Tensor) and one.ndim == 4 and one.shape[0] == 1 and one.shape[2:] == (size, size):
            allowed = one if one.dtype == torch.bool else one > torch.finfo(one.dtype).min / 2
            return allowed[0].any(0).cpu()[rows]
    return torch.ones(size, size, dtype=torch.bool).tril()[rows]


def _reduced(weights: torch.Tensor, sight: torch.Tensor) -> BlockAttention:
    """From [heads, rows, tokens] and what is in sight of each row, [rows, tokens]."""
    seen = sight.double()
    rest = seen.clone()
    rest[:, 0] = 0.0

    def evenly(places: torch.Tensor) -> torch.Tensor:
        return (places / places.sum(1, keepdim=True).clamp_min(1.0)).mean(0)

    return BlockAttention(weights.mean((0, 1)).cpu().double(), evenly(seen), evenly(rest))
