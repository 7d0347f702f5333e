"""What is known of the request that is being served: an id, by which a user finds it in the log, and its tokens."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Trace:
    """One request. It is counted into by whatever works for it, in tasks of its own too."""

    id: str = field(default_factory=lambda: f"req-{uuid.uuid4().hex[:20]}")
    """Ours: a client's own could be as long as it likes, or another's."""
    read: int = 0
    """Tokens of prompts."""
    written: int = 0
    """Tokens of answers."""


TRACE: ContextVar[Trace | None] = ContextVar("rolewise_trace", default=None)
"""The request that the task works for."""


def named(problem: str) -> str:
    """`problem`, with the request's id where there is a request."""
    trace = TRACE.get()
    return problem if trace is None else f"{problem} (request {trace.id})"
