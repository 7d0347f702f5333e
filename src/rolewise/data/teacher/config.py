"""What a teacher is and how it may be asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

MOST_AT_ONCE = 1000
"""The SDK opens no more connections."""


@dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    """An OpenAI-compatible endpoint and the limits within which it is asked."""

    model: str
    """The model's name, as the endpoint knows it."""
    provider: Literal["openai", "inspect"] = "openai"
    """openai: an OpenAI-compatible endpoint. inspect: a model of inspect_ai, such as anthropic/... or vllm/..., whose
    provider reads its key from an environment variable of its own."""
    base_url: str | None = None
    """Where the endpoint is, for instance http://localhost:8000/v1; by default $OPENAI_BASE_URL, or OpenAI's own."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that has the key. The key itself stands in no configuration, cache, log or report."""

    temperature: float | None = 1.0
    """Sampling temperature; null leaves it to the endpoint, as some models demand."""
    max_tokens: int = 1024
    """The most tokens of an answer; a longer one is cut short, and rejected."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the endpoint calls that; OpenAI's reasoning models know only max_completion_tokens."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the endpoint is told to answer in JSON, for prompts that have a schema. Answers are checked in any case."""

    attempts: int = 2
    """How often a request is asked at most while its answers are empty, no JSON, or not as the schema has it."""
    max_retries: int = 6
    """How often a call is repeated, with growing pauses, after a busy or broken server or connection."""
    timeout: float = 120.0
    """Seconds after which a call is given up and repeated."""
    concurrency: int = 8
    """The most calls at one time."""
    requests_per_minute: int | None = None
    """The most calls a minute; by default no limit."""
    tokens_per_minute: int | None = None
    """The most tokens a minute, prompts and answers; by default no limit."""
    budget_tokens: int | None = None
    """The most tokens, prompts and answers, of all runs on one cache together; by default no limit."""

    def __post_init__(self) -> None:
        _check(self)


def _check(config: TeacherConfig) -> None:
    if not config.model.strip():
        raise ValueError("model is empty; name the teacher's model as the endpoint knows it")
    # Neither value is shown: a key that landed in the wrong place must not come out in a log.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", config.api_key_variable):
        raise ValueError(
            "api_key_variable must be the name of an environment variable, such as OPENAI_API_KEY, never the key itself"
        )
    if config.base_url is not None:
        check_url(config.base_url, "base_url")
    least = {"max_tokens": 1, "attempts": 1, "max_retries": 0, "concurrency": 1}
    least |= {"requests_per_minute": 1, "tokens_per_minute": 1, "budget_tokens": 0}
    for name, lowest in least.items():
        value = getattr(config, name)
        if value is not None and value < lowest:
            raise ValueError(f"{name}={value} must be at least {lowest}")
    if config.concurrency > MOST_AT_ONCE:
        raise ValueError(f"concurrency={config.concurrency} must be at most {MOST_AT_ONCE}")
    if not 0 < config.timeout < float("inf"):
        raise ValueError(f"timeout={config.timeout} must be above 0 seconds, and finite")
    if config.temperature is not None and not 0 <= config.temperature < float("inf"):
        raise ValueError(f"temperature={config.temperature} must not be negative, nor infinite or NaN")


def check_url(url: str, name: str) -> None:
    """Refuse what is no address of an endpoint, or has a secret in it, which messages would show.

    Raises:
        ValueError: naming `name`, where the address came from, but not the address.
    """
    try:
        parts = urlsplit(url)
        secret, whole = "@" in parts.netloc or parts.query, parts.scheme in ("http", "https") and parts.hostname
    except ValueError:
        secret, whole = "", ""
    if secret:
        raise ValueError(f"{name} must have no user, password or query in it; the key goes into the environment")
    if not whole:
        raise ValueError(f"{name} must be an address such as http://localhost:8000/v1")
