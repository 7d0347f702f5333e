"""How much an answer attends to each role's tokens, in every block.

A raw share says little: it grows with the number of tokens, and much of it goes to the first token whatever that is
(an attention sink). So next to the share stands the *lift*, the share over what attention that is spread evenly over
all tokens in sight would give; and both again with the first token left out and the rest made to sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from rolewise.inspection.capture import BlockAttention, eager_attention, read_attention
from rolewise.inspection.results import LIFT, LIFT_REST, SHARE, SHARE_REST, Measurement
from rolewise.inspection.rows import AnswerRow
from rolewise.modeling import SegmentedCausalLM

Figures = dict[str, float | None]
"""The four measures of a group of tokens, by name."""


def group_figures(block: BlockAttention, groups: Mapping[str, Sequence[int]]) -> dict[str, Figures]:
    """The measures of each group of tokens in one block; None for a group without tokens, or out of sight."""
    first = float(block.weights[0])
    rest = block.weights.clone()
    rest[0] = 0.0
    rest /= max(float(rest.sum()), torch.finfo(rest.dtype).tiny)  # all on the first token: shares of nothing are 0
    assert first <= 1 + 1e-2, f"attention weights sum to one, but the first token has {first}"
    found: dict[str, Figures] = {}
    for name, places in groups.items():
        others = [at for at in places if at > 0]
        share, lift = _share_and_lift(block.weights, block.uniform, places)
        share_rest, lift_rest = _share_and_lift(rest, block.uniform_rest, others)
        found[name] = {SHARE: share, LIFT: lift, SHARE_REST: share_rest, LIFT_REST: lift_rest}
    return found


def _share_and_lift(
    weights: torch.Tensor, uniform: torch.Tensor, places: Sequence[int]
) -> tuple[float | None, float | None]:
    if not places:
        return None, None
    at = torch.tensor(list(places))
    share, even = float(weights[at].sum()), float(uniform[at].sum())
    return share, share / even if even > 0 else None


def measure_attention(
    model: SegmentedCausalLM, rows: Sequence[AnswerRow], told: Callable[[int], object] = lambda tokens: None
) -> list[Measurement]:
    """The attention of every row's answer, a row at a time.

    Args:
        model: the model.
        rows: each sample under each condition.
        told: is told after each row how many tokens it had.

    Raises:
        ValueError: when no block gives attention weights (Mamba, linear attention).
    """
    read: dict[str, dict[str, dict[int, dict[str, Figures]]]] = {}
    with eager_attention(model):
        for row in rows:
            blocks = read_attention(model, row.input_ids, row.segment_ids, row.queries)
            if not blocks:
                raise ValueError(
                    f"{type(model).__name__} gives no attention weights in any layer (it has none, or no eager "
                    "implementation); leave this part out: --parts probe"
                )
            figures = {number: group_figures(block, row.groups) for number, block in sorted(blocks.items())}
            read.setdefault(row.condition, {})[row.id] = figures
            told(len(row.input_ids))
    return [one for condition, samples in read.items() for one in _measurements(condition, samples)]


def _measurements(condition: str, samples: Mapping[str, Mapping[int, Mapping[str, Figures]]]) -> list[Measurement]:
    layers = tuple(next(iter(samples.values())))
    roles = list(dict.fromkeys(role for blocks in samples.values() for role in blocks[layers[0]]))
    found: list[Measurement] = []
    for role in roles:
        for measure in (SHARE, LIFT, SHARE_REST, LIFT_REST):
            values = tuple(
                tuple(blocks[layer].get(role, {}).get(measure) for layer in layers) for blocks in samples.values()
            )
            if any(value is not None for row in values for value in row):
                found.append(
                    Measurement(
                        kind="attention",
                        condition=condition,
                        role=role,
                        measure=measure,
                        layers=layers,
                        units=tuple(samples),
                        values=values,
                    )
                )
    return found
