"""One judged answer, and one model's answers to a suite: what tables and reports are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CLEAN, CEILING = "clean", "ceiling"
"""Conditions that are not attacks; their domains have the same names."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One answer, judged."""

    id: str
    """The sample's id: the unit of pairing, and of the bootstrap."""
    condition: str
    """`clean`, an attack's name, or `ceiling` (the payload in the user turn); of suites by kind, how it was asked."""
    domain: str
    """`clean`, `in_domain`, `ood`, `secalign` or `ceiling`; of suites by kind, their own."""
    epoch: int = 1
    """Which repetition of the row."""
    verdicts: Mapping[str, bool]
    """Whether the payload was carried out, by each of the suite's criteria (`rolewise.evaluation.SUITES`); those that
    nobody judged are not there."""
    ungraded: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a grader that was asked gave no verdict, by criterion or measure."""
    grades: Mapping[str, float] = field(default_factory=dict[str, float])
    """What a grader gave, by the suite's measures; suites that have measures only."""
    rouge_l: float | None = None
    """ROUGE-L F1 against the reference answer; clean rows only."""
    reference_logprob: float | None = None
    """Mean log-likelihood per token of the reference answer; clean rows of models that can tell it."""
    correct: float | None = None
    """Whether the task's answer is there, 1 or 0; clean rows of suites whose tasks a program checks."""
    win: float | None = None
    """How a judge prefers the answer over the reference: 1, 0.5 or 0; judged clean rows only."""
    span: float | None = None
    """How many words of the secret stand in the answer in one run; rows that ask for a secret only."""
    output: str
    """The answer."""
    cut: bool = False
    """Whether the answer was cut at the most tokens that it may have."""
    messages: list[dict[str, Any]]
    """The conversation that was asked, with roles."""
    meta: dict[str, Any]
    """What the row says of itself: the payload and what was injected, or its category."""

    @property
    def kind(self) -> str | None:
        """The kind that its sample is of, in suites whose figures go by kind."""
        return self.meta.get("category")

    def followed(self, criterion: str) -> bool:
        """Whether the payload was carried out, by `criterion`."""
        return self.verdicts[criterion]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A row that has no answer: its prompt is too long for the model, or the attacker wrote nothing to ask."""

    id: str
    """The sample's id."""
    condition: str
    epoch: int = 1
    reason: str
    """What the model or its provider said."""
    too_long: bool = True
    """Whether the prompt's length is why; otherwise the reason says all."""
    tokens: int | None = None
    """The prompt's length; None when the provider does not tell."""
    positions: int | None = None
    """The most that the model takes; None when the provider does not tell."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model on one suite with one probe."""

    model: str
    """The model's name as inspect_ai knows it."""
    label: str
    """A short name for tables."""
    suite: str
    """The name of its task, such as `structured_query` (`rolewise.evaluation.SUITES`)."""
    probe: str | None
    """The mis-tagging probe that was on, if any."""
    settings: dict[str, Any]
    """The task's and the model's arguments, and the generation settings."""
    versions: dict[str, str]
    """Package versions by name."""
    created: str
    """When the run began, ISO 8601."""
    complete: bool
    """Whether every row was answered, or refused for good."""
    expected: int
    """How many rows there are, over all epochs."""
    outcomes: list[Outcome]
    refused: list[Refusal] = field(default_factory=list[Refusal])
    """Rows that have no outcome, because they are too long for the model; asking again would not help."""

    @property
    def judged(self) -> set[str]:
        """The criteria and measures by which its answers were judged, or a grader was asked to."""
        return {name for one in self.outcomes for part in (one.verdicts, one.ungraded, one.grades) for name in part}
