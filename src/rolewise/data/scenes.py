"""Drawing the parts of a text: words without repetition, values, and sentences from templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from rolewise.data.pools import DAYS, MONTHS, POOLS, Split
from rolewise.samples import Position

Wordings = Mapping[Split, Sequence[str]]
"""Templates for each split; the two lists share no template."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A task before it gets an id and a payload; the fields are those of `Sample`."""

    instruction: str
    data: str
    answer: str
    decoy: str
    wrong: tuple[str, ...] = ()
    match: Literal["words", "text"] = "words"
    positions: tuple[Position, ...] = ("begin", "middle", "end")


class Scene:
    """A seeded source of words for one text. No name, thing, food or number is drawn twice."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng = rng
        self.split: Split = split
        self.pools = POOLS[split]
        self._used: set[str] = set()

    def _fresh(self, words: Sequence[str]) -> str:
        word = self.rng.choice([word for word in words if word not in self._used])
        self._used.add(word)
        return word

    def name(self) -> str:
        """A first name."""
        return self._fresh(self.pools.names)

    def thing(self) -> str:
        """A thing one buys, singular."""
        return self._fresh(self.pools.things)

    def food(self) -> str:
        """Something to eat or drink."""
        return self._fresh(self.pools.foods)

    def place(self) -> str:
        """A place that takes "the"."""
        return self._fresh(self.pools.places)

    def event(self) -> str:
        """An event that takes "the"."""
        return self._fresh(self.pools.events)

    def colour(self) -> str:
        """A colour."""
        return self._fresh(self.pools.colours)

    def day(self) -> str:
        """A day of the week."""
        return self._fresh(DAYS)

    def month(self) -> str:
        """A month's name."""
        return self._fresh(MONTHS)

    def filler(self) -> str:
        """A sentence that answers no question."""
        return self._fresh(self.pools.fillers)

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return int(self._fresh([str(value) for value in range(low, high + 1)]))

    def price(self) -> str:
        """A price in whole dollars."""
        return f"${self.number(3, 99)}"

    def email(self) -> str:
        """An e-mail address of somebody who is not named otherwise."""
        return f"{self.name().lower()}@{self.rng.choice(self.pools.hosts)}"

    def pick(self, wordings: Wordings) -> str:
        """One template of this split."""
        return self.rng.choice(wordings[self.split])

    def chance(self, share: float) -> bool:
        """True in `share` of all draws."""
        return self.rng.random() < share

    def shuffled(self, parts: Sequence[str]) -> list[str]:
        """The parts in random order."""
        return self.rng.sample(list(parts), len(parts))

    def with_fillers(self, text: str, count: int) -> str:
        """`text` among `count` filler sentences, its own sentences in order."""
        fillers = [self.filler() for _ in range(count)]
        before = self.rng.randrange(count + 1)
        return " ".join([*fillers[:before], text, *fillers[before:]])
