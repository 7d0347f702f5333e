"""Calls that brought no answer: which are repeated, which cost their row, and which end the run."""

from __future__ import annotations

import email.utils
import math
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rolewise.data.teacher.config import TeacherConfig
from rolewise.data.teacher.requests import Reason
from rolewise.display import safe_text

FIRST_PAUSE = 1.0
"""Seconds before the first repetition; each further pause is twice as long."""
LONGEST_PAUSE = 60.0
"""No pause of ours is longer."""
SHORTEST_KEY = 12
"""A shorter key is taken for a word, and left alone in answers (never in messages)."""
LONGEST_HOLD = 600.0
"""A server that asks for a longer pause than this ends the run; it can go on later."""


@dataclass(frozen=True, kw_only=True)
class Again:
    """Repeat the call."""

    why: str
    after: float | None = None
    """Seconds that the server asks everyone to wait."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """This request cannot be answered; others can."""

    reason: Reason
    why: str


Failure = Again | Lost | Exception
"""An exception ends the run."""

_TOO_LONG_CODES = ("context_length_exceeded", "exceed_context_size_error")
_TOO_LONG = re.compile(r"maximum context length|context (size|window)|context length exceeded|prompt is too long", re.I)
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")


def failure_of(
    status: int, body: Any, headers: Mapping[str, str], config: TeacherConfig, url: str, key: str
) -> Failure:
    """What follows from an answer that is an error.

    Args:
        status: its HTTP status.
        body: the error as JSON, or text.
        headers: of the answer.
        config: names what to set.
        url: of the endpoint, for messages.
        key: never to be shown, though servers quote it.
    """
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {"message": body}
    codes = {str(fields.get("code")), str(fields.get("type"))}
    said = _said(fields.get("message"), status, key)
    if status in (402, 429) and (status == 402 or codes & {*_NO_CREDIT}):
        return PermissionError(f"{url} says that there is no credit left ({said}); top it up, then run the same again")
    if status in (408, 409, 425, 429) or status >= 500:
        after = retry_after(headers)
        if after is not None and after > LONGEST_HOLD:
            return ConnectionError(f"{url} asks to wait {after:.0f} seconds ({said}); run the same again then")
        return Again(why=said, after=after)
    if status in (400, 413, 422) and (codes & {*_TOO_LONG_CODES} or _TOO_LONG.search(said)):
        return Lost(reason=Reason.TOO_LONG, why=said)
    if status == 400 and codes & {"content_filter"}:
        return Lost(reason=Reason.CONTENT_FILTER, why=said)
    if status == 401:
        return PermissionError(f"{url} does not take the key in {config.api_key_variable} ({said}); export a valid one")
    if status == 403:
        return PermissionError(
            f"{url} does not let this key use {config.model!r} ({said}); set a model or {config.api_key_variable} "
            "that may"
        )
    if status == 404:
        return ValueError(
            f"{url} has no model {config.model!r}, or no chat completions ({said}); set model, or base_url (most end "
            "in /v1)"
        )
    return ValueError(
        f"{url} refuses the request ({said}); try max_tokens_name=max_completion_tokens, temperature=null, or "
        "structured=json_object or none, or another model"
    )


def _said(message: Any, status: int, key: str) -> str:
    """What the server says, short, harmless and without the key."""
    text = message if isinstance(message, str) else ""
    text = safe_text(" ".join(text.replace(key, "[key]").split()))
    return f"{status}: {text[:300]}" if text else str(status)


def without_key(text: str | None, key: str) -> str | None:
    """An answer without the key, which a server may quote. A word such as EMPTY, where none is wanted, is no key."""
    return text.replace(key, "[key]") if text and len(key) >= SHORTEST_KEY else text


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait: `Retry-After` as a number or a date, or `retry-after-ms`."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        moment = email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        return None
    return max(0.0, moment - time.time())


def pause(repetition: int) -> float:
    """Seconds before a repetition, from 0 on: twice as long each time, at random between half of it and all."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(repetition, 30)) * random.uniform(0.5, 1.0)
