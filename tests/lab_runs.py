"""A tiny run of the lab, and a result of one, for tests."""

from __future__ import annotations

from rolewise.lab.config import LabConfig
from rolewise.lab.evaluation import Count, evaluation_conditions
from rolewise.lab.results import LabResult
from rolewise.lab.tasks import PAYLOAD_KINDS

TINY = LabConfig(
    base_steps=2, steps=3, batch_size=6, hidden=16, layers=1, heads=2, test_samples=8, init_std=0.01
)  # fmt: skip


def result_of(config: LabConfig, followed: int = 1, ceiling: int = 7) -> LabResult:
    counts = [
        Count(
            condition=condition, n=8, correct=6, followed=ceiling if condition.name == "ceiling" else followed,
            kinds=dict.fromkeys(PAYLOAD_KINDS, (2, 1)),
        )
        for condition in evaluation_conditions()
    ]  # fmt: skip
    return LabResult(config=config, counts=tuple(counts), loss=0.1, table_ratio=0.5, start_ratio=0.2)
