"""Rows that a model could not be asked: each fails on its own, is counted and named, and the evaluation goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rolewise.evaluation.outcomes import Refusal, Run

if TYPE_CHECKING:
    from inspect_ai.model import ModelOutput

TOO_LONG_KEY = "rolewise_too_long"
"""Where the metadata of our provider's output has the lengths: `{"tokens": 531, "positions": 512}`."""

NOTHING_TO_ASK_KEY = "rolewise_nothing_to_ask"
"""In the metadata of an output that stands for a row of which an attacker made nothing: no matter of length."""

LEFT_OUT = "figures over several conditions, and differences between models, leave their samples out"
"""What becomes of a sample that lacks a condition."""


def refusal_of(output: ModelOutput) -> str | None:
    """Why a model could not be asked, or None when it was.

    All providers of inspect_ai, ours included, tell a prompt that is too long by the stop reason `model_length`, with
    the error in place of an answer and no tokens used. An answer that reached the model's last position stops for the
    same reason, but did use tokens: it is an answer.
    """
    if output.empty or output.stop_reason != "model_length" or output.usage is not None:
        return None
    return output.error or output.completion or "too long for the model"


def as_refusal(output: ModelOutput, meta: dict[str, Any], epoch: int) -> Refusal | None:
    """The refusal that an output is, or None."""
    if (reason := refusal_of(output)) is None:
        return None
    metadata = output.metadata or {}
    lengths: dict[str, int] = metadata.get(TOO_LONG_KEY, {})
    return Refusal(
        id=meta["id"],
        condition=meta["condition"],
        epoch=epoch,
        reason=reason,
        too_long=NOTHING_TO_ASK_KEY not in metadata,
        tokens=lengths.get("tokens"),
        positions=lengths.get("positions"),
    )


def refusals_line(run: Run, most: int = 6) -> str:
    """`2 of 126 rows could not be asked: too long for the model (531 > 512 tokens): row-1/ignore, row-4/ignore`.

    Empty when there are none.

    Args:
        run: whose rows.
        most: how many rows to name.
    """
    groups: dict[str, list[Refusal]] = {}
    for one in run.refused:
        groups.setdefault("" if one.too_long else one.reason, []).append(one)
    return "; ".join(
        f"{len(group)} of {run.expected} rows could not be asked: {_shown(reason) or _too_long(group)}: "
        + _named(group, most)
        for reason, group in groups.items()
    )


def _named(group: Sequence[Refusal], most: int) -> str:
    names = list(dict.fromkeys(f"{one.id}/{one.condition}" for one in group))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _too_long(group: Sequence[Refusal]) -> str:
    known = [(one.tokens, one.positions) for one in group if one.tokens and one.positions]
    if not known:
        return f"too long for the model (it says: {_shown(group[0].reason)})"
    tokens, positions = max(known)
    return f"too long for the model ({'up to ' if len(set(known)) > 1 else ''}{tokens} > {positions} tokens)"


def _shown(reason: str) -> str:
    from rolewise.display import safe_text

    return safe_text(" ".join(reason.split()))[:160]
