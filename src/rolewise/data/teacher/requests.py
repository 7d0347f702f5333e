"""What is asked, and what comes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rolewise.data.teacher.config import TeacherConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question to the teacher. `Prompt.request` makes it from a prompt file.

    Raises:
        ValueError: when it has no messages, or something in it that JSON or UTF-8 cannot hold.
    """

    prompt: str
    """The name of the prompt."""
    version: int
    """The version of the prompt; with the name it goes into each row."""
    messages: Sequence[Mapping[str, str]]
    """What the teacher gets: `{"role", "content"}` each."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema that the answer must keep to; None for an answer in plain text."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The caller's own: comes back with the result, and is not part of the key."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError(f"a request of the prompt {self.prompt!r} has no messages; give at least a user message")
        try:
            json.dumps([self.messages, self.schema], ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"a request of the prompt {self.prompt!r} cannot be sent as JSON: {error}") from None

    def key(self, config: TeacherConfig) -> str:
        """A hash of all that decides the answer: model, messages, schema, sampling settings and prompt version.

        The address is not part of it, so that a local server may come back on another port.
        """
        temperature = None if config.temperature is None else float(config.temperature)  # 1 and 1.0 are the same
        structured = None if self.schema is None else config.structured
        settings = [config.model, temperature, config.max_tokens, structured]
        parts = [settings, self.prompt, self.version, self.messages, self.schema]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server sent, as it is kept in the cache."""

    text: str | None
    refusal: str | None
    finish: str | None
    """Why the answer ended: stop, length, content_filter ..."""
    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False
    """Whether the server gave no token counts, so that these are our estimate."""
    model: str | None = None
    """The model as the server names it, often with a date."""

    @property
    def tokens(self) -> int:
        """Of prompt and answer."""
        return self.prompt_tokens + self.completion_tokens


class Reason(StrEnum):
    """Why there is no usable answer."""

    REFUSAL = "refusal"
    BROKEN_JSON = "broken JSON"
    SCHEMA = "schema violation"
    TRUNCATED = "truncated"
    CONTENT_FILTER = "content filter"
    EMPTY = "empty"
    TOO_LONG = "too long for the model"
    GAVE_UP = "gave up after retries"
    OVER_BUDGET = "over budget"


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A usable answer."""

    request: Request
    text: str
    """As the teacher wrote it."""
    value: Any
    """What the text says as JSON, true to the request's schema; None without a schema."""
    usage: Answer
    """Token counts, and the model's name at the server."""
    attempt: int = 0
    """Which answer to this request it is; earlier ones could not be used."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """No usable answer."""

    request: Request
    reason: Reason
    detail: str
    """The reason in words, for people; safe to print."""
    raw: str = ""
    """What the teacher wrote, if it did."""
    usage: Answer | None = None
    """Token counts of the last answer; None when there was none."""


Result = Accepted | Rejected


def estimated_tokens(*texts: str) -> int:
    """About how many tokens: a quarter of the UTF-8 bytes, rounded up, without any tokenizer.

    For English that is the usual four characters a token; Chinese, Japanese and Korean come to 0.75 tokens a
    character.
    """
    return sum(-(-len(text.encode(errors="replace")) // 4) for text in texts)


def estimated_prompt(request: Request) -> int:
    """About how many tokens a request has: its texts, four for the frame of each message, and its schema."""
    schema = [json.dumps(request.schema)] if request.schema is not None else []
    return estimated_tokens(*(m["content"] for m in request.messages), *schema) + 4 * len(request.messages)
