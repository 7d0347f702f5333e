"""Conversations to compare answers on: many lengths, all roles, shared beginnings."""

from __future__ import annotations

import random
from typing import Any

_WORDS = (
    "red",
    "green",
    "blue",
    "cat",
    "dog",
    "tree",
    "copy",
    "count",
    "the",
    "last",
    "first",
    "word",
    "of",
    "…",
    "\n",
)


def conversations(count: int = 50, *, seed: int = 0) -> list[list[dict[str, Any]]]:
    """So many different conversations; several begin alike."""
    rng = random.Random(seed)

    def words(most: int) -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, most)))

    systems = [words(20) for _ in range(4)]
    made: list[list[dict[str, Any]]] = []
    while len(made) < count:
        messages: list[dict[str, Any]] = []
        if rng.random() < 0.8:
            messages.append({"role": "system", "content": rng.choice(systems)})
        for turn in range(rng.randint(1, 3)):
            if turn:
                messages.append({"role": "assistant", "content": words(6)})
            messages.append({"role": "user", "content": words(12)})
            if rng.random() < 0.5:
                messages.append({"role": "data", "content": words(30)})
        if messages not in made:
            made.append(messages)
    return made
