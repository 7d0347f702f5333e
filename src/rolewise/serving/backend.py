"""What the front asks of an engine: tokens, one answer at a time, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from rolewise.engine.decoding import Ending, Request, TokenLogprob
from rolewise.roles import RoleScheme


class OverloadedError(Exception):
    """No room for another request; it may be sent again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(Exception):
    """The engine cannot answer now: an upstream is gone, or the engine has stopped.

    Its words are for the log, since they name machines; `told` is what clients read.
    """

    def __init__(self, message: str, *, told: str = "the model cannot answer now; try again later") -> None:
        super().__init__(message)
        self.told = told


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The next tokens of an answer."""

    token_ids: list[int]
    """Plain ids, the one that ended the turn left out."""
    logprobs: list[TokenLogprob] | None = None
    """One for each of `token_ids`, where the request asks for them."""
    ending: Ending | None = None
    """Set in the last delta of an answer, and in no other."""
    cached_tokens: int = 0
    """In the first delta: how many tokens of the prompt came from a prefix computed before."""


class Backend(Protocol):
    """An engine behind the front.

    Text is the front's business: a backend decodes nothing, and need not heed `Request.stop` (the front cuts the text
    and closes the iterator), though it may to save work.
    """

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, with which the front renders and decodes."""
        ...

    @property
    def scheme(self) -> RoleScheme:
        """Which row each role takes."""
        ...

    @property
    def positions(self) -> int | None:
        """How many tokens fit, prompt and answer; None when there is no limit."""
        ...

    @property
    def has_roles(self) -> bool:
        """Whether roles change what it answers: not without a segment table, nor at scale 0."""
        ...

    @property
    def takes_scale(self) -> bool:
        """Whether a request may choose its scale."""
        ...

    async def start(self) -> None:
        """Make ready to answer.

        Raises:
            UnavailableError: when it cannot.
        """
        ...

    async def close(self) -> None:
        """End; answers under way end with UnavailableError."""
        ...

    async def healthy(self) -> bool:
        """Whether a request that came now could be answered."""
        ...

    def stream(self, request: Request, *, scale: float | None = None) -> AsyncIterator[Delta]:
        """One answer, a delta at a time. Closing the iterator (`aclose`) ends the work on it at once.

        Args:
            request: the prompt with its roles, and how to answer.
            scale: factor on the segment table, in place of the model's own.

        Raises:
            OverloadedError: when no more requests can wait.
            UnavailableError: when the engine is gone; an answer that has begun is never begun again in silence.
            NotImplementedError: for something that this engine cannot do, named.
        """
        ...
