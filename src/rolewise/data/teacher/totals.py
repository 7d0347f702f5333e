"""What a run will cost, and what it came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rolewise.data.teacher.requests import Accepted, Answer, Reason, Result


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a million tokens cost, in any currency."""

    prompt: float
    completion: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will ask, before it starts. `str` gives it for people."""

    requests: int
    cached: int
    """Of them answered in the cache, or the same as another one."""
    to_ask: int
    prompt_tokens: int
    """Of the requests to ask: a quarter of their UTF-8 bytes, and four for the frame of each message."""
    most_completion_tokens: int
    """If every answer is as long as `max_tokens` allows."""
    attempts: int
    """How often each may be asked, while its answers cannot be used; the figures are for once."""
    budget_left: int | None
    """Tokens of `budget_tokens` that no run on this cache has used; None without a budget."""
    cost: float | None
    """At most, for once; None when no price was given."""

    def __str__(self) -> str:
        lines = [
            f"{self.requests:,} requests, {self.cached:,} of them answered already: {self.to_ask:,} to ask",
            f"about {self.prompt_tokens:,} prompt tokens (a quarter of the bytes), "
            f"at most {self.most_completion_tokens:,} completion tokens",
        ]
        if self.cost is not None:
            lines.append(f"at most about {self.cost:,.2f} in the currency of the prices")
        if self.attempts > 1 and self.to_ask:
            lines.append(f"a request whose answer cannot be used may be asked {self.attempts} times; that adds to it")
        if self.budget_left is not None:
            short = self.prompt_tokens + self.most_completion_tokens > self.budget_left
            told = "which may end before all are asked" if short else "enough"
            lines.append(f"{self.budget_left:,} tokens of the budget are left, {told}")
        return "\n".join(lines)


@dataclass(kw_only=True)
class Totals:
    """What a run came to. `str` gives it for people."""

    asked: int = 0
    """Calls that brought an answer, usable or not."""
    failed_calls: int = 0
    """Calls that brought none, and were repeated or given up."""
    cached: int = 0
    """Results that took no call."""
    accepted: int = 0
    rejected: Counter[Reason] = field(default_factory=Counter[Reason])
    prompt_tokens: int = 0
    """Of the calls of this run."""
    completion_tokens: int = 0
    """Of the calls of this run."""
    estimated: int = 0
    """Of the answers, those whose tokens the server did not count, and we estimated."""
    seconds: float = 0.0

    def count(self, answer: Answer) -> None:
        """One more call brought an answer."""
        self.asked += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.estimated += answer.estimated

    def count_result(self, result: Result, *, cached: bool) -> None:
        """One more result."""
        self.cached += cached
        if isinstance(result, Accepted):
            self.accepted += 1
        else:
            self.rejected[result.reason] += 1

    def __str__(self) -> str:
        rejected = sum(self.rejected.values())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.rejected.most_common())
        estimated = f" (the tokens of {self.estimated:,} answers are our estimate)" if self.estimated else ""
        return (
            f"{self.accepted:,} accepted, {rejected:,} rejected{f' ({reasons})' if reasons else ''}; "
            f"{self.cached:,} without a call\n"
            f"{self.asked:,} answers asked for, {self.failed_calls:,} calls failed; "
            f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens{estimated}; "
            f"{self.seconds:,.1f} seconds"
        )
