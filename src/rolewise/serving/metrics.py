"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHORT = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class _Registry(CollectorRegistry):
    """Without the time at which each counter was made; to turn that off is for all registries of a process."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric


class Metrics:
    """Counters of one app, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = _Registry()

        def made(kind: Any, name: str, text: str, labels: tuple[str, ...], **options: Any) -> Any:
            return kind(f"rolewise_{name}", text, labels, registry=self.registry, **options)

        self.requests: Counter = made(Counter, "requests", "Requests, by status.", ("endpoint", "status"))
        self.seconds: Histogram = made(
            Histogram, "request_seconds", "From a request to the end of its answer.", ("endpoint",), buckets=_SECONDS
        )
        self.front: Histogram = made(
            Histogram, "front_seconds", "From a chat request to the engine: parsing, checking and rendering.",
            ("model",), buckets=_SHORT,
        )  # fmt: skip
        self.first: Histogram = made(
            Histogram, "time_to_first_token_seconds", "From the engine's getting a prompt to its first token.",
            ("model",), buckets=_SECONDS,
        )  # fmt: skip
        self.read: Counter = made(Counter, "prompt_tokens", "Tokens of prompts.", ("model",))
        self.cached: Counter = made(
            Counter, "cached_prompt_tokens", "Tokens of prompts that came from a prefix computed before.", ("model",)
        )
        self.written: Counter = made(Counter, "completion_tokens", "Tokens that were written.", ("model",))
        self.waiting: Gauge = made(Gauge, "answers_waiting", "Answers without a token yet.", ("model",))
        self.running: Gauge = made(Gauge, "answers_running", "Answers that are being written.", ("model",))

    def of(self, model: str) -> ModelCounts:
        """The counters of one model."""
        return ModelCounts(self, model)

    def page(self) -> bytes:
        """What Prometheus reads."""
        return generate_latest(self.registry)


class ModelCounts:
    """Counts the answers of one model."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.front = metrics.front.labels(model)
        self._first, self._read, self._cached = (
            metrics.first.labels(model), metrics.read.labels(model), metrics.cached.labels(model)
        )  # fmt: skip
        self._written = metrics.written.labels(model)
        self._waiting, self._running = metrics.waiting.labels(model), metrics.running.labels(model)

    def asked(self, tokens: int) -> None:
        """An answer to a prompt of so many tokens begins to wait."""
        self._read.inc(tokens)
        self._waiting.inc()

    def first_token(self, seconds: float, cached: int) -> None:
        """It has waited, and is being written."""
        self._first.observe(seconds)
        self._cached.inc(cached)
        self._waiting.dec()
        self._running.inc()

    def left(self, written: int, *, started: bool) -> None:
        """It has ended, in whatever way."""
        self._written.inc(written)
        (self._running if started else self._waiting).dec()
