"""Random changes to an injected text, for best-of-N: its case, and the letters inside its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

STRENGTHS = (0.0, 0.1, 0.3, 0.6)
"""How many of the letters change case, and how many of the words are scrambled: each is drawn for every attempt."""

_WORD = re.compile(r"[^\W\d_]{4,}")


def recased(text: str, rng: Random, share: float) -> str:
    """`text` with about `share` of its letters in the other case."""
    return "".join(letter.swapcase() if rng.random() < share else letter for letter in text)


def scrambled(text: str, rng: Random, share: float, keep: str) -> str:
    """`text` with the inner letters of about `share` of its words of four or more letters shuffled.

    The words of `keep` stay as they are, wherever they stand.
    """

    def shuffle(found: re.Match[str]) -> str:
        word = found[0]
        if rng.random() >= share:
            return word
        inner = list(word[1:-1])
        rng.shuffle(inner)
        return word[0] + "".join(inner) + word[-1]

    parts = re.split(f"({re.escape(keep)})", text, flags=re.IGNORECASE)
    return "".join(part if place % 2 else _WORD.sub(shuffle, part) for place, part in enumerate(parts))


def perturbation(rng: Random, witness: str) -> tuple[Callable[[str], str], str]:
    """A drawn change of texts, and its name; the same text is always changed in the same way.

    The letters of the witness keep their places (their case may change): an answer that spells a scrambled witness as
    it was told to could never be judged as having followed.
    """
    case, words = rng.choice(STRENGTHS), rng.choice(STRENGTHS)
    seed = rng.random()

    def change(text: str) -> str:
        own = Random(seed)
        return recased(scrambled(text, own, words, witness), own, case)

    names = ([f"case {case}"] if case else []) + ([f"scramble {words}"] if words else [])
    return change, ", ".join(names)
