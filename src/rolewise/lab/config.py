"""What a run of the lab is: an arm, a seed, how it is trained, and on what it is tested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from rolewise.lab.tasks import PAYLOAD_KINDS
from rolewise.unknown import did_you_mean

Arm = Literal["text", "text+ISE", "delimiter", "delimiter+ISE"]
ARMS: tuple[Arm, ...] = get_args(Arm)
"""Headers of ordinary words or of reserved tokens, each without and with the segment table."""

Mix = Literal["twins", "adversarial", "clean"]
MIXES: tuple[Mix, ...] = get_args(Mix)
"""Which rows the roles are learnt from.

- `clean`: no injection is ever seen; half of the user turns hold two instructions.
- `adversarial`: user turns hold one instruction; half of the data holds an injection, which is ignored.
- `twins`: a third clean, a third injected, a third with the very same payload in the user turn, carried out.
"""

LENGTHS = (1, 2, 4, 8)
"""Lengths of the data in tests, in multiples of the longest data in training."""


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """One model of the lab: an arm, trained with roles, and tested.

    Raises:
        ValueError: for a value that can't be, naming it.
    """

    arm: Arm = "delimiter+ISE"
    """Whose training and test this is."""
    seed: int = 0
    """Decides the weights at the start, the training rows, their order, and the test rows."""
    mix: Mix = "twins"
    """What the training rows are like."""
    steps: int = 120
    """Steps of training with roles; the amount of training data."""
    batch_size: int = 48
    """Rows of a step."""
    learning_rate: float = 1e-3
    """Of the model, at its peak."""
    lr_multiple: float = 10.0
    """The segment table's learning rate over the model's."""
    init_std: float | None = 0.01
    """The table's standard deviation at the start; or None, when `init_ratio` says it."""
    init_ratio: float | None = None
    """The same, relative to the RMS of the token embeddings."""
    payload_kinds: tuple[str, ...] = PAYLOAD_KINDS
    """Kinds of instructions that are injected in training; all kinds are asked by users, and all are tested."""
    base_steps: int = 3000
    """Steps of pre-training without roles, which the arms of a seed share."""
    base_learning_rate: float = 2e-3
    """Of pre-training, at its peak."""
    hidden: int = 128
    """Width of the model."""
    layers: int = 3
    """Depth of the model."""
    heads: int = 4
    """Attention heads of a layer."""
    train_words: int = 24
    """The longest data in training with roles, in words; tests are 1, 2, 4 and 8 times as long."""
    test_samples: int = 160
    """Samples of each test condition; kinds of tasks and payloads take turns."""

    def __post_init__(self) -> None:
        _one_of("arm", self.arm, ARMS)
        _one_of("mix", self.mix, MIXES)
        for kind in self.payload_kinds:
            _one_of("payload_kinds", kind, PAYLOAD_KINDS)
        if not self.payload_kinds or len(set(self.payload_kinds)) != len(self.payload_kinds):
            raise ValueError(
                f"payload_kinds={self.payload_kinds} must name each kind once, and at least one of {PAYLOAD_KINDS}"
            )
        if (self.init_std is None) == (self.init_ratio is None):
            raise ValueError(
                f"give either init_std={self.init_std} or init_ratio={self.init_ratio}, and None for the other"
            )
        for name in ("learning_rate", "lr_multiple", "base_learning_rate"):
            _number(name, getattr(self, name), above=0.0)
        for name in ("init_std", "init_ratio"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), least=0.0)
        for name in ("seed", "steps", "base_steps"):
            _number(name, getattr(self, name), least=0.0)
        for name in ("batch_size", "hidden", "layers", "heads", "test_samples"):
            _number(name, getattr(self, name), least=1.0)
        if self.batch_size % 6:
            raise ValueError(f"batch_size={self.batch_size} must be a multiple of 6: rows come in blocks of six")
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden={self.hidden} must be a multiple of 2 * heads={2 * self.heads}")
        if not 24 <= self.train_words <= 64:
            raise ValueError(f"train_words={self.train_words} must lie between 24 (room for an attack) and 64")

    @property
    def ise(self) -> bool:
        """Whether the arm has a segment table."""
        return self.arm.endswith("+ISE")

    @property
    def reserved_delimiters(self) -> bool:
        """Whether the headers are reserved tokens."""
        return self.arm.startswith("delimiter")

    @property
    def key(self) -> LabConfig:
        """The same run, with the table's settings at their defaults where the arm has no table to use them."""
        if self.ise:
            return self
        unused = ("lr_multiple", "init_std", "init_ratio")
        return replace(self, **{field.name: field.default for field in fields(self) if field.name in unused})

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> LabConfig:
        """Read back what `to_dict` wrote.

        Raises:
            ValueError: for a key that is no setting.
        """
        known = {field.name for field in fields(cls)}
        for key in stored.keys() - known:
            hint = did_you_mean(key, known) or f"there are {', '.join(sorted(known))}"
            raise ValueError(f"unknown setting {key!r}; {hint}")
        read: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
        }
        return cls(**read)


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = did_you_mean(str(value), allowed, cutoff=0.3) or f"there are {', '.join(allowed)}"
        raise ValueError(f"{name}={value!r} is unknown; {hint}")


def _number(name: str, value: float, *, least: float | None = None, above: float | None = None) -> None:
    if not math.isfinite(value) or (least is not None and value < least) or (above is not None and value <= above):
        bound = f"at least {least:g}" if least is not None else f"above {above:g}"
        raise ValueError(f"{name}={value} must be {bound}")


# --- axes ------------------------------------------------------------------------------------------------------


AXES: dict[str, tuple[dict[str, Any], ...]] = {
    "main": ({},),
    "init": tuple(
        [{"init_std": std, "init_ratio": None} for std in (0.001, 0.01, 0.1)]
        + [{"init_std": None, "init_ratio": ratio} for ratio in (0.25, 1.0)]
    ),
    "lr": tuple({"lr_multiple": multiple} for multiple in (1.0, 10.0, 50.0, 100.0)),
    "mix": tuple({"mix": mix} for mix in MIXES),
    "steps": tuple({"steps": steps} for steps in (30, 60, 120, 240)),
    "unseen": ({"payload_kinds": ("say", "repeat")}, {"payload_kinds": ("code", "pick")}),
}
"""What each axis changes, setting by setting. Length, position, number of injections, forged delimiters and kinds of
payloads are axes of the test: every run measures them."""

TABLE_AXES = ("init", "lr")
"""Axes that only arms with a segment table have."""


def configs_of(axis: str, arms: Sequence[Arm], seed: int, base: LabConfig | None = None) -> list[LabConfig]:
    """The runs of one axis, for one seed.

    Raises:
        ValueError: for an unknown axis.
    """
    _one_of("axis", axis, tuple(AXES))
    start = base or LabConfig()
    chosen = [arm for arm in arms if axis not in TABLE_AXES or arm.endswith("+ISE")]
    return [replace(start, arm=arm, seed=seed, **changes) for changes in AXES[axis] for arm in chosen]
