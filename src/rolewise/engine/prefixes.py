"""Which rows share a prefix, and which of these are worth computing once.

A token's state depends on its id and on its segment, and on those before it. So a prefix is shared only where both
agree: with ids alone, a user's text and the same text as data would be taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Row = tuple[Sequence[int], Sequence[int]]
"""The ids of a row, and its segments."""

_CLUSTER_COST = 8
"""What a cluster costs besides its tokens, in tokens: a short prefix is not worth a pass of its own."""

_WIDEST = 96
"""The most rows of a cluster; bounds the planner's work."""


@dataclass(frozen=True)
class Cluster:
    """Rows that share their first `length` tokens (0: nothing is shared)."""

    rows: tuple[int, ...]
    length: int


def clusters(rows: Sequence[Row]) -> list[Cluster]:
    """Cut rows into clusters such that the fewest tokens are computed, each cluster's prefix counted once.

    In sorted order rows with long common prefixes are neighbours, so the best cut is found among runs of neighbours,
    by dynamic programming. At least the last token of a row is never part of a prefix: its logits are wanted.
    """
    keys = [list(zip(ids, segments, strict=True)) for ids, segments in rows]
    order = sorted(range(len(rows)), key=lambda index: keys[index])
    lengths = [len(keys[index]) for index in order]
    common = [common_length(keys[a], keys[b]) for a, b in pairwise(order)]
    best: list[float] = [0.0]
    choice: list[tuple[int, int]] = []
    for end in range(1, len(order) + 1):
        shared = lengths[end - 1] - 1
        total = 0
        cost, begin, length = float("inf"), end - 1, 0
        for start in range(end - 1, max(-1, end - 1 - _WIDEST), -1):
            total += lengths[start]
            if start < end - 1:
                shared = min(shared, common[start], lengths[start] - 1)
            count = end - start
            prefix = shared if count > 1 else 0
            here = best[start] + total - (count - 1) * prefix + (_CLUSTER_COST if prefix else 0)
            if here < cost:
                cost, begin, length = here, start, prefix
        best.append(cost)
        choice.append((begin, length))
    found: list[Cluster] = []
    end = len(order)
    while end:
        begin, length = choice[end - 1]
        found.append(Cluster(tuple(order[begin:end]), length))
        end = begin
    return found[::-1]


def passes(widths: Sequence[int], cost: int) -> list[tuple[int, int]]:
    """Cut rows, widest first, into passes such that the fewest positions are computed, padding included.

    Args:
        widths: the tokens to compute of each row, in descending order.
        cost: what a pass costs besides, in positions.

    Returns:
        (first, last + 1) of each pass, in order.
    """
    best: list[float] = [0.0]
    begins: list[int] = []
    for end in range(1, len(widths) + 1):
        totals = [best[begin] + (end - begin) * widths[begin] + cost for begin in range(end)]
        least = min(totals)
        best.append(least)
        begins.append(totals.index(least))
    found: list[tuple[int, int]] = []
    end = len(widths)
    while end:
        found.append((begins[end - 1], end))
        end = begins[end - 1]
    return found[::-1]


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """How many elements two sequences share at their beginning."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
