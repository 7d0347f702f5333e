"""What the stages of a recipe are: settings that are read from YAML and checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolewise.attacks import make_attack
from rolewise.data.conflicts import CHANNELS, Channel

By = Literal["auto", "teacher", "program"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step: so many rows in, their rows out."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """How it can be made: by a teacher, by a program, or either."""
    prompt: ClassVar[str] = ""
    """The teacher's prompt, where there is one."""
    program_source: ClassVar[Literal["needed", "optional", "none"]] = "needed"
    """Whether the program makes its rows of others; a teacher always does."""

    combines: ClassVar[bool] = False
    """Whether the program puts other rows of the source into a row, too."""

    take: int
    """How many rows go in. Of a source, rows that no earlier stage has taken; of a stage, any of its rows."""
    source: tuple[str, ...] = ()
    """The sources or earlier stages whose rows go in."""
    by: By = "auto"
    """Who makes the rows. auto: the teacher where the recipe has one and the stage a prompt, else a program."""

    def __post_init__(self) -> None:
        if self.take < 1:
            raise ValueError(f"take={self.take} must be at least 1")
        if self.by != "auto" and self.by not in self.kinds:
            raise ValueError(f"by={self.by!r}, but this kind of stage is made by {' or '.join(self.kinds)} only")

    def taught(self, teacher: bool) -> bool:
        """Whether a teacher makes the rows.

        Args:
            teacher: whether the recipe has one.
        """
        return self.by == "teacher" or (self.by == "auto" and "teacher" in self.kinds and teacher)


@dataclass(frozen=True, kw_only=True)
class Take(Stage):
    """Rows of a source as they are."""

    kinds = ("program",)

    system: str = ""
    """A system message for the rows that have none; by default they stay without."""


@dataclass(frozen=True, kw_only=True)
class Decompose(Stage):
    """A prompt taken apart into system, user and data; the answer stays.

    Program: rows that come with their data apart (Alpaca's input), some of them under a system message that asks for
    nothing in particular.
    """

    kinds = ("teacher", "program")
    prompt = "decompose"

    system_share: float = 0.5
    """Program: the share of rows that get a system message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("system_share", self.system_share)


@dataclass(frozen=True, kw_only=True)
class Regenerate(Stage):
    """The answer written anew, under a system message that it keeps to.

    Teacher: under the row's own system message. Program: under a rule on the form of the answer, into which the row's
    answer is brought.
    """

    kinds = ("teacher", "program")
    prompt = "regenerate"


@dataclass(frozen=True, kw_only=True)
class Rules(Stage):
    """Generated rows in which the system states a rule, nobody contradicts, and the answer keeps it."""

    kinds = ("program",)
    program_source = "none"


@dataclass(frozen=True, kw_only=True)
class Inject(Stage):
    """Indirect injection: another row's instruction in the data; the answer stays."""

    kinds = ("program",)
    combines = True

    attacks: tuple[str, ...] = ("naive", "completion_other")
    """How it is injected, in turn."""
    position: Literal["end", "random"] = "end"
    """Where in the data: its end, or begin, middle or end."""
    forged: Literal["reference", "other"] = "reference"
    """The answer that completions forge: the right one, or another row's."""
    twins: float = 0.0
    """The share of rows that get a twin: the same extra instruction in the user turn, and both answers."""
    max_injected_chars: int | None = None
    """The most characters of what is injected: instruction and data, with twins the answer, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("twins", self.twins)
        if not self.attacks:
            raise ValueError("attacks is empty; name at least one, such as naive")
        for name in self.attacks:
            make_attack(name, role="data", split="train", position=None)
        if self.max_injected_chars is not None and self.max_injected_chars < 1:
            raise ValueError(f"max_injected_chars={self.max_injected_chars} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Override(Stage):
    """Direct injection: the user tries to change the system message; the answer keeps to it.

    Program: the system states a rule on form, and the user turn demands another one.
    """

    kinds = ("teacher", "program")
    prompt = "override"

    twins: float = 1.0
    """Program: the share of rows that get a twin, in which the same words come from who may say them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("twins", self.twins)


@dataclass(frozen=True, kw_only=True)
class Conflict(Stage):
    """A request that the system message rules out; the answer keeps to it.

    Program: `take` pairs of generated conflicts and their twins (`rolewise.data.conflicts`).
    """

    kinds = ("teacher", "program")
    prompt = "conflict"
    program_source = "none"

    channels: tuple[str, ...] = tuple(CHANNELS)
    """Program: who gives the order that contradicts the rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        from rolewise.data.conflicts.rows import chosen_channels

        chosen_channels(self.chosen)

    @property
    def chosen(self) -> tuple[Channel, ...]:
        """The channels, typed; `__post_init__` has checked them."""
        return self.channels  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Extract(Stage):
    """The user tries to get the system message; the answer keeps it.

    Program: under generated system messages or, with a source, under its rows' (a row without one lends its request).
    """

    kinds = ("teacher", "program")
    prompt = "extract"
    program_source = "optional"
    combines = True

    twins: float = 1.0
    """Program: the share of rows that get a twin: the same request about a text of the user's own is carried out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("twins", self.twins)


@dataclass(frozen=True, kw_only=True)
class Ask(Stage):
    """An honest question about what the assistant is set up for, honestly answered.

    Program: under generated system messages.
    """

    kinds = ("teacher", "program")
    prompt = "ask"
    program_source = "none"


KINDS: dict[str, type[Stage]] = {
    "take": Take,
    "decompose": Decompose,
    "regenerate": Regenerate,
    "rules": Rules,
    "inject": Inject,
    "override": Override,
    "conflict": Conflict,
    "extract": Extract,
    "ask": Ask,
}
"""By the name in `kind`."""


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} must be between 0 and 1")
