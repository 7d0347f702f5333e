"""How much work a quickstart does, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGED = "smollm2-135m"

# Measured on two CPU cores in fp32 (docs/log.md): rows of about 80 tokens.
_SECONDS_OF_START = 45.0
_TRAINING_ROWS_PER_SECOND = 1.8
_ANSWERS_PER_SECOND = 3.0
_SHARE_OF_TRAINING = 0.55

ARMS = ("base", "delimiter", "delimiter+ISE")
"""The three models compared: as shipped, fine-tuned with roles as headers only, fine-tuned with ISE as well."""


@dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """Fine-tune SmolLM2-135M with and without segment embeddings, attack both, and compare."""

    minutes: float = 10.0
    """About how long the whole run may take on two CPU cores; more minutes are more training rows and test rows."""
    output: Path = Path("runs/quickstart")
    """Where models, answers and report go. The same directory again resumes, or says that it is done."""
    fresh: bool = False
    """Delete what an earlier quickstart left in `output`, and start over."""
    seed: int = 0
    """Decides the generated rows and the order of training."""
    model: str = PACKAGED
    """The model to fine-tune: the packaged one, a hub id or a directory."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.minutes <= 10_000:
            raise ValueError(f"minutes={self.minutes} must lie between 0.5 and 10000; try --minutes 10")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows of a quickstart of so many minutes; the same on any machine, so that a run can be repeated."""

    training_rows: int
    """Rows that both arms are trained on, in the same order."""
    test_samples: int
    """Test samples; each is asked clean, under every attack, and with the payload in the user turn."""

    @classmethod
    def of(cls, minutes: float, conditions: int) -> Plan:
        """Split `minutes` between training two arms and asking three models under so many `conditions`."""
        seconds = max(10.0, minutes * 60 - _SECONDS_OF_START)
        rows = seconds * _SHARE_OF_TRAINING / (len(ARMS) - 1) * _TRAINING_ROWS_PER_SECOND
        answers = seconds * (1 - _SHARE_OF_TRAINING) * _ANSWERS_PER_SECOND
        return cls(
            training_rows=max(12, int(rows) // 6 * 6),  # whole blocks: each attacked row with its twin
            test_samples=max(2, int(answers / len(ARMS) / conditions)),
        )
