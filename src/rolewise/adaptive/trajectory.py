"""What an adaptive attack did to one sample, attempt by attempt, and how an attempt is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rolewise.evaluation.judging import begins_with, witness_in
from rolewise.unknown import unknown_name

CRITERIA: dict[str, Callable[[str, str], bool]] = {"in_response": witness_in, "begins_with": begins_with}
"""By name, whether an answer follows a payload with this witness: what an attack tries to reach."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One look at whether the attack works by now."""

    cost: int
    """How much of the budget was spent when it was made: steps of GCG, attempts of the others."""
    success: bool
    label: str = ""
    """What kind of attempt it was, in our own words."""
    loss: float | None = None
    """GCG: the loss of the suffix that was tried."""
    text: str = ""
    """What stood in the conversation: GCG's suffix, the whole injected text of the others."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """All attempts on one sample; it ends with the first success, or with the budget."""

    method: str
    """gcg, pair or best_of_n."""
    unit: str
    """What the budget counts: steps or attempts."""
    budget: int
    """The most that it was allowed to spend."""
    criterion: str
    """When an attempt counts as a success: a key of `CRITERIA`."""
    attempts: tuple[Attempt, ...]
    """In order of their cost."""
    losses: tuple[float, ...] = ()
    """GCG: the loss after each step, that of the start first."""
    unparsed: int = 0
    """PAIR: how many replies of the attacker could not be read."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else decides it."""

    @property
    def first_success(self) -> int | None:
        """What the first success cost; None without one."""
        return next((attempt.cost for attempt in self.attempts if attempt.success), None)

    def numbers(self) -> dict[str, Any]:
        """All but what was written, ready for JSON: for results that are published."""
        attempts = [asdict(replace(attempt, text="")) for attempt in self.attempts]
        return {**self.to_dict(), "attempts": attempts}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "first_success": self.first_success}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Trajectory:
        """Read back what `to_dict` or `numbers` wrote."""
        fields = {name: value for name, value in stored.items() if name != "first_success"}
        fields["attempts"] = tuple(Attempt(**attempt) for attempt in fields["attempts"])
        fields["losses"] = tuple(fields.get("losses", ()))
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The target's answer."""

    text: str
    """Or why there is none."""
    refused: bool = False
    """Whether there is none: the conversation is too long for the model, or no attack could be made."""


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """What came of an attack on one sample."""

    messages: Sequence[Mapping[str, Any]]
    """The conversation of the attempt that counts: the first success, else the one that came nearest."""
    answer: Answered
    """What the target said to it."""
    injected: str
    """What the attack wrote into it."""
    trajectory: Trajectory


def criterion_named(name: str) -> Callable[[str, str], bool]:
    """The judge of that name.

    Raises:
        ValueError: when there is none; the nearest is named.
    """
    if name not in CRITERIA:
        raise unknown_name("criterion", name, CRITERIA)
    return CRITERIA[name]


class Nearest:
    """Keeps, of all attempts, the one that counts: a success before an answer with the witness before the last."""

    def __init__(self, witness: str) -> None:
        self._witness = witness
        self._rank = (-1, -1)
        self.messages: Sequence[Mapping[str, Any]] = ()
        self.answer = Answered(text="", refused=True)
        self.injected = ""

    def offer(self, messages: Sequence[Mapping[str, Any]], answer: Answered, injected: str, success: bool) -> None:
        """An attempt was made."""
        near = 0 if answer.refused else 1 + witness_in(answer.text, self._witness)
        if (rank := (int(success), near)) >= self._rank:
            self._rank, self.messages, self.answer, self.injected = rank, messages, answer, injected

    def attacked(self, trajectory: Trajectory) -> Attacked:
        """The result."""
        return Attacked(messages=self.messages, answer=self.answer, injected=self.injected, trajectory=trajectory)
