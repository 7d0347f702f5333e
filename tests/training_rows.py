"""Random rows with roles and labels, for the training tests: no tokenizer needed."""

from __future__ import annotations

import random

from rolewise.training.dataset import RoleDataset
from tests.models import VOCAB

SYSTEM, USER, DATA, OUTPUT = range(4)


def random_rows(
    count: int = 8, *, seed: int = 0, segments: tuple[int, ...] = (SYSTEM, USER, DATA), longest: int = 6
) -> list[dict[str, list[int]]]:
    """Rows of a few tokens of each segment, then a few OUTPUT tokens, which carry the labels."""
    rng = random.Random(seed)
    rows: list[dict[str, list[int]]] = []
    for _ in range(count):
        ids: list[int] = []
        roles: list[int] = []
        labels: list[int] = []
        for segment in (*segments, OUTPUT):
            span = [rng.randrange(2, VOCAB) for _ in range(rng.randint(1, longest))]
            ids += span
            roles += [segment] * len(span)
            labels += span if segment == OUTPUT else [-100] * len(span)
        rows.append({"input_ids": ids, "segment_ids": roles, "labels": labels})
    return rows


def role_dataset(rows: list[dict[str, list[int]]]) -> RoleDataset:
    """The same rows as the trainer holds them."""
    dataset = RoleDataset()
    for row in rows:
        dataset.append(row["input_ids"], row["segment_ids"], [int(label != -100) for label in row["labels"]])
    return dataset
