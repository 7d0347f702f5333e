"""Rows that are too long for a model: each fails on its own, is counted and named, and the evaluation goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rolewise.evaluation.outcomes import Refusal, Run

if TYPE_CHECKING:
    from inspect_ai.model import ModelOutput

TOO_LONG_KEY = "rolewise_too_long"
"""Where the metadata of our provider's output has the lengths: `{"tokens": 531, "positions": 512}`."""

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
    lengths: dict[str, int] = (output.metadata or {}).get(TOO_LONG_KEY, {})
    return Refusal(
        id=meta["id"],
        condition=meta["condition"],
        epoch=epoch,
        reason=reason,
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
    if not run.refused:
        return ""
    names = list(dict.fromkeys(f"{one.id}/{one.condition}" for one in run.refused))
    named = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    told = f"{len(run.refused)} of {run.expected} rows could not be asked: too long for the model ({_why(run)})"
    return f"{told}: {named}"


def _why(run: Run) -> str:
    known = [(one.tokens, one.positions) for one in run.refused if one.tokens and one.positions]
    if not known:
        from rolewise.display import safe_text

        return f"it says: {safe_text(' '.join(run.refused[0].reason.split()))[:160]}"
    tokens, positions = max(known)
    return f"{'up to ' if len(set(known)) > 1 else ''}{tokens} > {positions} tokens"
