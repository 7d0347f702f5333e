"""Prompts that are being read, a part of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rolewise.engine.kv import Prefix, cut_rows, join_rows
from rolewise.engine.prefixes import passes
from rolewise.engine.reader import Reader
from rolewise.engine.rows import Row
from rolewise.engine.scaling import scaled

_LEAST_PART = 16
"""A prompt is not begun for fewer positions than these."""


@dataclass(eq=False)
class Reading:
    """A prompt of which `known` positions are computed."""

    row: Row
    known: int = 0
    prefix: Prefix | None = None
    """Keys and values of these positions."""
    cache: Any = None
    """The same in a cache that can be read on with, if it was read alone."""


Portion = tuple[Reading, int]
"""A prompt, and up to where it is read next."""


def portions(readings: list[Reading], chunk: int) -> list[Portion]:
    """What to read next: those that came first, whole if possible, some `chunk` positions in all."""
    found: list[Portion] = []
    for reading in readings:
        rest = reading.row.length - reading.known
        part = min(rest, chunk)
        if found and part < min(rest, _LEAST_PART):
            break
        found.append((reading, reading.known + part))
        chunk -= part
        if chunk <= 0:
            break
    return found


def read(reader: Reader, chosen: list[Portion]) -> Iterator[tuple[list[Reading], torch.Tensor]]:
    """Compute portions of prompts, those of like size and one scale in one pass.

    Yields:
        the prompts that a pass has read to their ends, and the logits after each of them [prompts, vocabulary].
    """
    for scale in dict.fromkeys(reading.row.scale for reading, _ in chosen):
        mine = sorted(
            (one for one in chosen if one[0].row.scale == scale), key=lambda one: one[0].known - one[1]
        )  # the widest first
        widths = [want - reading.known for reading, want in mine]
        for begin, end in passes(widths, reader.pass_cost):
            with scaled(reader.model, scale):
                logits = _pass(reader, mine[begin:end])
            ended = [place for place, (one, want) in enumerate(mine[begin:end]) if want == one.row.length]
            if ended:
                yield [mine[begin + place][0] for place in ended], logits[ended]


def _pass(reader: Reader, chosen: list[Portion]) -> torch.Tensor:
    wants = [want for _, want in chosen]
    requests = [reading.row.prompt for reading, _ in chosen]
    alone = chosen[0][0] if len(chosen) == 1 else None
    if alone is not None and alone.cache is not None:
        settled, cache = [alone.known], alone.cache
    else:
        # Between a prefix and its rest there is no padding: of shorter rests a few tokens more are computed again.
        width = max(want - reading.known for reading, want in chosen)
        settled = [max(0, want - width) if reading.known else 0 for reading, want in chosen]
        prefixes = [reading.prefix for reading, _ in chosen]
        cache = join_rows(prefixes, settled) if any(settled) else reader.new_cache()
    logits, cache, _ = reader.read(requests, wants, settled, cache)
    prefixes = cut_rows(cache, wants, copy=False) if reader.keys_only else [None]
    for (reading, want), prefix in zip(chosen, prefixes, strict=True):
        reading.known, reading.prefix = want, prefix
        reading.cache = cache if alone is not None else None
    return logits
