"""Instructions of the lab's language, each with the answer that is right.

`find` and `which` ask something about the data; the others carry all they need, so that they can be a payload
anywhere. Their combinations of a verb and an argument fall into two splits: a quarter of them is only ever tested. The
tasks of the user have no such splits, since the data around them is always new: what a test of `find` should tell is
whether it was asked by somebody who may, not whether the pair of words was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from rolewise.lab.vocabulary import CLASS_OF, CLASSES, CODES, STOP, VERBS

Split = Literal["train", "test"]

TASK_KINDS = ("find", "which")
"""Kinds that need the data."""
PAYLOAD_KINDS = ("say", "repeat", "code", "pick")
"""Kinds that an injection can be."""

_HELD_OUT = 4


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What somebody asks for."""

    kind: str
    words: tuple[str, ...]
    answer: tuple[str, ...]
    """What an answer holds if, and only if, the instruction was carried out."""
    needs: tuple[str, ...] = ()
    """Words that the data must hold."""
    classes: frozenset[str]
    """The classes that it speaks about; nothing else near it may, so that there is one right answer."""


def split_of(verb: str, word: str) -> Split:
    """The split of a payload's verb with its argument; every class of words has both, for every kind of payload."""
    (verbs,) = [verbs for verbs in VERBS.values() if verb in verbs]
    place = verbs.index(verb) + CLASSES[CLASS_OF[word]].index(word)
    return "test" if place % _HELD_OUT == 0 else "train"


@cache
def _combinations(kind: str, split: Split, name: str) -> tuple[tuple[str, str], ...]:
    """Verb and argument, of one class of words."""
    words = [word for word in CLASSES[name] if kind != "code" or word in CODES]
    pairs = tuple((verb, word) for verb in VERBS[kind] for word in words)
    return pairs if kind in TASK_KINDS else tuple(pair for pair in pairs if split_of(*pair) == split)


def draw_instruction(rng: Random, kind: str, split: Split, taken: Iterable[str] = ()) -> Instruction:
    """An instruction of `kind` that speaks about none of the classes `taken`.

    Raises:
        ValueError: for an unknown kind, or when too few classes are left.
    """
    if kind not in VERBS:
        raise ValueError(f"kind={kind!r} must be one of {', '.join(VERBS)}")
    occupied = set(taken)
    free = [name for name in CLASSES if name not in occupied]
    if len(free) < 2:
        raise ValueError(f"an instruction of kind {kind!r} needs two classes, and {sorted(occupied)} are taken")
    verb, word = rng.choice([pair for name in free for pair in _combinations(kind, split, name)])
    own = CLASS_OF[word]
    if kind in ("say", "repeat", "code"):
        answer = {"say": (word,), "repeat": (word, word), "code": (CODES.get(word, ""),)}[kind]
        return Instruction(kind=kind, words=(verb, word, STOP), answer=answer, classes=frozenset({own}))
    if kind == "find":
        return Instruction(
            kind=kind, words=(verb, own, STOP), answer=(word,), needs=(word,), classes=frozenset({own})
        )  # fmt: skip
    other = rng.choice([name for name in free if name != own])
    options = [word, rng.choice(CLASSES[other])]
    rng.shuffle(options)
    asked = (own, *options) if kind == "pick" else tuple(options)
    return Instruction(
        kind=kind,
        words=(verb, *asked, STOP),
        answer=(word,),
        needs=(word,) if kind == "which" else (),
        classes=frozenset({own, other}),
    )


def draw_instructions(rng: Random, kinds: Iterable[str], split: Split) -> list[Instruction]:
    """Instructions of these kinds, no two of which speak about one class."""
    drawn: list[Instruction] = []
    taken: set[str] = set()
    for kind in kinds:
        drawn.append(draw_instruction(rng, kind, split, taken))
        taken |= drawn[-1].classes
    return drawn
