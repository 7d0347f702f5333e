"""The result of a run, and the file that keeps them: one line of JSON for each finished run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolewise.evaluation.statistics import Estimate, wilson
from rolewise.lab.config import LENGTHS, LabConfig
from rolewise.lab.evaluation import SEVERAL, Count
from rolewise.lab.rows import ATTACKS, Condition, Place


@dataclass(frozen=True, kw_only=True)
class LabResult:
    """What one run showed."""

    config: LabConfig
    counts: tuple[Count, ...]
    loss: float
    """Mean of the last tenth of the training steps."""
    table_ratio: float | None
    """RMS of the trained table over that of the token embeddings; None without a table."""
    start_ratio: float | None
    """The same before training."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Wall time of pre-training (0 when it was found done), training and testing."""
    versions: dict[str, str] = field(default_factory=dict[str, str])

    def count(self, name: str, length: int = 1, *, place: Place | None = None, count: int | None = None) -> Count:
        """The count of a condition.

        Args:
            name: clean, ceiling or an attack.
            length: of the data, in multiples.
            place: of the injections; as on the axis of lengths when None.
            count: of injections; likewise.

        Raises:
            ValueError: when it was not measured.
        """
        several = name == "several"
        wanted = Condition(
            name=name,
            length=length,
            place=place or ("middle" if several else "end"),
            count=count or (SEVERAL if several else 1),
        )
        for one in self.counts:
            if one.condition == wanted:
                return one
        raise ValueError(f"{wanted} was not measured; see rolewise.lab.evaluation.evaluation_conditions")

    def utility(self, length: int = 1) -> Estimate:
        """The share of clean rows with exactly the right answer."""
        one = self.count("clean", length)
        return wilson(one.correct, one.n)

    def ceiling(self, length: int = 1, *, kind: str | None = None) -> Estimate:
        """The share of user turns with a payload (of a kind) that was carried out."""
        return _share(self.count("ceiling", length), kind)

    def success(
        self,
        name: str,
        length: int = 1,
        *,
        place: Place | None = None,
        count: int | None = None,
        kind: str | None = None,
    ) -> Estimate:
        """The share of attacked rows (with a payload of a kind) where a payload was carried out."""
        return _share(self.count(name, length, place=place, count=count), kind)

    def separation(self, length: int = 1) -> Estimate:
        """Ceiling minus the mean success of all attacks.

        The interval is Newcombe's for a difference of shares. It takes the mean over attacks for one share of n rows,
        which is on the safe side, since attacks of one sample are not alike altogether.
        """
        attacks = [self.count(name, length) for name in ATTACKS]
        mean = wilson(round(sum(one.followed for one in attacks) / len(attacks)), attacks[0].n)
        exact = sum(one.followed / one.n for one in attacks) / len(attacks)
        return _difference(self.ceiling(length), mean, exact)

    def separation_from(
        self,
        name: str,
        length: int = 1,
        *,
        place: Place | None = None,
        count: int | None = None,
        kind: str | None = None,
    ) -> Estimate:
        """Ceiling minus the success of one attack, of payloads of one kind when it is named."""
        success = self.success(name, length, place=place, count=count, kind=kind)
        return _difference(self.ceiling(length, kind=kind), success, success.value)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "config": self.config.to_dict(),
            "counts": [one.to_dict() for one in self.counts],
            "loss": self.loss,
            "table_ratio": self.table_ratio,
            "start_ratio": self.start_ratio,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> LabResult:
        """Read back what `to_dict` wrote."""
        read: dict[str, Any] = dict(stored)
        read["config"] = LabConfig.from_dict(stored["config"])
        read["counts"] = tuple(Count.from_dict(one) for one in stored["counts"])
        return cls(**read)


def _share(count: Count, kind: str | None) -> Estimate:
    n, followed = (count.n, count.followed) if kind is None else count.kinds[kind]
    return wilson(followed, n)


def _difference(first: Estimate, second: Estimate, second_value: float) -> Estimate:
    value = first.value - second_value
    down = ((first.value - first.low) ** 2 + (second.high - second.value) ** 2) ** 0.5
    up = ((first.high - first.value) ** 2 + (second.value - second.low) ** 2) ** 0.5
    return Estimate(value=value, low=max(-1.0, value - down), high=min(1.0, value + up), n=first.n)


def measured_lengths(result: LabResult) -> list[int]:
    """The lengths that a result was measured at."""
    return [length for length in LENGTHS if any(one.condition.length == length for one in result.counts)]


class ResultFile:
    """Finished runs, one JSON line each. A killed run loses the one that it was at."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a line that a kill cut off is dropped.

        Raises:
            ValueError: when a line is no result.
        """
        self.path = path
        self.results: list[LabResult] = []
        self._whole = 0
        if not path.exists():
            return
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                self.results.append(LabResult.from_dict(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number} is no result of the lab ({error}); name another directory") from None
            self._whole += len(line)

    def missing(self, configs: Iterable[LabConfig]) -> list[LabConfig]:
        """Those configurations that no line has, each once."""
        done = {result.config.key for result in self.results}
        return [config for config in dict.fromkeys(config.key for config in configs) if config not in done]

    def find(self, config: LabConfig) -> LabResult | None:
        """The result of a configuration, if it is finished."""
        return next((result for result in self.results if result.config.key == config.key), None)

    def add(self, result: LabResult) -> None:
        """Append a result, and make sure that it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("r+b" if self.path.exists() else "w+b") as file:
            file.truncate(self._whole)
            file.seek(self._whole)
            line = (json.dumps(result.to_dict()) + "\n").encode()
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._whole += len(line)
        self.results.append(result)
