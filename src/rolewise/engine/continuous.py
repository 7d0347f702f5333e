"""Continuous batching: requests join the running rows as they come, and leave as they end.

A step reads some of the prompts that wait, no more than running rows can wait for, and writes one token of each running
row. All belongs to one thread, which alone touches the model; so a pass may be at a scale of its own. What was computed
for a prompt is kept (`store`), and a request that begins alike begins there. Of requests that come together and begin
alike, one goes ahead; those of one and the same prompt (`n` answers) share all of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from rolewise.engine.decoding import Growing, Request
from rolewise.engine.prefixes import common_length
from rolewise.engine.prompts import Reading, portions, read
from rolewise.engine.reader import Reader
from rolewise.engine.rows import Row, Written, write
from rolewise.engine.running import Running
from rolewise.engine.store import BLOCK, PrefixStore
from rolewise.modeling import SegmentedCausalLM

_WORTH_WAITING = 2 * BLOCK
"""A request lets one that begins alike go ahead when that saves it so many positions."""
_IDLE_FACTOR = 4
"""How much more is read at once while no row runs that would have to wait."""
_AHEAD = 32
"""Positions by which each row should be able to grow when another is admitted."""


class ContinuousEngine:
    """Answers requests as they come. One thread calls `submit` and `step`.

    Args:
        model: the model, in evaluation mode.
        tokenizer: its tokenizer.
        max_running: rows that are under way together.
        kv_tokens: positions of all these rows together; a request waits while it would not fit, and the row that came
            last waits again when all outgrow it. Padding between rows of unlike lengths comes on top.
        cache_tokens: positions that are kept of prompts and answers of late; 0 keeps none.
        chunk_tokens: positions of prompts that are read in a step while rows run, which wait for so long.

    Raises:
        ValueError: when one of these is out of range.
    """

    def __init__(
        self,
        model: SegmentedCausalLM,
        tokenizer: Any,
        *,
        max_running: int = 16,
        kv_tokens: int = 32768,
        cache_tokens: int = 16384,
        chunk_tokens: int | None = None,
    ) -> None:
        if chunk_tokens is None:
            chunk_tokens = 128 if model.device.type == "cpu" else 2048
        for name, value in (("max_running", max_running), ("kv_tokens", kv_tokens), ("chunk_tokens", chunk_tokens)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self.model, self.tokenizer = model, tokenizer
        self.reader = Reader(model, tokenizer)
        # Of other memories than keys and values some belong to the modules, so nothing else may run meanwhile.
        self.max_running = max_running if self.reader.keys_only else 1
        self.store = PrefixStore(cache_tokens if self.reader.keys_only else 0)
        self._running = Running(self.reader, self.store)
        self._readings: list[Reading] = []
        self._waiting: deque[Row] = deque()
        self._kv_tokens, self._chunk = kv_tokens, chunk_tokens
        self.own_scale = model.segment_scale
        """Of requests that choose none; the model's changes from pass to pass."""
        embedding: Any = model.get_input_embeddings()
        self._vocabulary = int(embedding.weight.shape[0])
        self._admitted = 0

    def row(self, request: Request, scale: float | None = None) -> Row:
        """A row for a request. Nothing is computed, and any thread may ask for one.

        Args:
            request: the prompt with its roles, and how to answer.
            scale: factor on the segment table, in place of the model's own.

        Raises:
            PromptTooLongError: when the prompt fills the model's positions.
            ValueError: when an id, a segment or the scale is out of range, or the prompt fills all of `kv_tokens`.
        """
        scale = self.own_scale if scale is None else float(scale)
        if not math.isfinite(scale):
            raise ValueError(f"scale={scale} must be a finite number; 1 is the table as trained, 0 the bare model")
        for name, values, end in (
            ("input_ids", request.input_ids, self._vocabulary),
            ("segment_ids", request.segment_ids, self.model.num_segments),
        ):
            if min(values) < 0 or max(values) >= end:
                bad = next(place for place, one in enumerate(values) if not 0 <= one < end)
                raise ValueError(f"{name}[{bad}] is {values[bad]}, outside of 0..{end - 1}")
        room, left = self.reader.room_for(request), self._kv_tokens - len(request.input_ids)
        if left < 1:
            raise ValueError(
                f"the prompt has {len(request.input_ids)} tokens, and the engine has room for {self._kv_tokens} "
                "(kv_tokens), the answer included; shorten it"
            )
        growing = Growing(request, self.tokenizer, self.reader.stops, left if room is None else min(room, left))
        return Row(growing, scale, self.reader.output)

    def submit(self, row: Row) -> None:
        """Let a row wait for its turn."""
        self._waiting.append(row)

    @property
    def running(self) -> int:
        """Rows under way."""
        return len(self._readings) + len(self._running.rows)

    @property
    def busy(self) -> bool:
        """Whether there is something to do."""
        return bool(self._waiting or self.running)

    @property
    def kv_tokens(self) -> int:
        """Positions that the rows under way take, padding left out."""
        return sum(one.row.length for one in self._readings) + self._running.tokens

    @property
    def held_tokens(self) -> int:
        """Positions that the running rows' buffers have room for."""
        return self._running.held

    @torch.inference_mode()
    def step(self) -> Iterator[list[Written]]:
        """Do a little of all that is to do; yields what was written, as it comes."""
        self._drop_cancelled()
        self._admit()
        for ended, logits in read(self.reader, portions(self._readings, self._portion())):
            yield from self._begin(ended, logits)
        yield from self._running.write()
        self._send_back()

    def _drop_cancelled(self) -> None:
        self._waiting = deque(row for row in self._waiting if not row.cancelled)
        self._readings = [one for one in self._readings if not one.row.cancelled]
        self._running.drop(lambda row: row.cancelled)

    def _portion(self) -> int:
        if not self.reader.keys_only:
            return max((one.row.length for one in self._readings), default=0)  # read in one piece
        return self._chunk if self._running.rows else self._chunk * _IDLE_FACTOR

    def _begin(self, ended: list[Reading], logits: torch.Tensor) -> Iterator[list[Written]]:
        """The first token of prompts that were read, and of others that are the same."""
        taken = [(place, row) for place, one in enumerate(ended) for row in (one.row, *self._twins(one))]
        places, rows = [place for place, _ in taken], [row for _, row in taken]
        self._readings = [one for one in self._readings if one.row not in rows]
        written = write(rows, logits[places])
        yield written  # at once: what follows need not be waited for
        for (place, row), one in zip(taken, written, strict=True):
            if not one.last:
                self._running.join(row, ended[place])
        for reading in ended:
            if reading.prefix is not None and not reading.row.failed:
                self.store.put(reading.row.scale, reading.row.keys, reading.prefix)

    # --- whose turn it is --------------------------------------------------------------------------------------

    def _admit(self) -> None:
        for row in list(self._waiting):
            if not self._has_room(row):
                return  # nobody overtakes: a long prompt would wait for ever
            if not self._lets_go_ahead(row):
                known, prefix = self.store.find(row.scale, row.keys, row.length - 1)
                self._enter(row, known)
                self._readings.append(Reading(row, known, prefix))

    def _has_room(self, row: Row) -> bool:
        if not (running := self.running):
            return True
        ahead = _AHEAD * (running + 1)
        return running < self.max_running and self.kv_tokens + row.length + ahead <= self._kv_tokens

    def _enter(self, row: Row, known: int) -> None:
        self._waiting.remove(row)
        if row.admitted is None:  # else it was sent back, and has told
            row.cached_tokens = known
            self._admitted += 1
            row.admitted = self._admitted

    def _lets_go_ahead(self, row: Row) -> bool:
        """Whether a prompt that is being read has so much in common with this one that it should wait."""
        if not self.reader.keys_only:
            return False
        others = [one.row for one in self._readings if one.row.scale == row.scale]
        if any(_same(other, row) for other in others):
            return True
        shared = max((_shared(other, row) for other in others), default=0)
        return shared > 0 and min(shared, self.store.room) - self.store.known(row.scale, row.keys) >= _WORTH_WAITING

    def _twins(self, reading: Reading) -> list[Row]:
        """Rows that wait for just this prompt, and for which there is room; they count as read."""
        found: list[Row] = []
        for row in list(self._waiting) if self.reader.keys_only else ():
            if self.running >= self.max_running or self.kv_tokens + row.length > self._kv_tokens:
                break
            if row.scale == reading.row.scale and _same(row, reading.row):
                self._enter(row, row.length)
                self._readings.append(Reading(row, row.length))
                found.append(row)
        return found

    def _send_back(self) -> None:
        """Let the row that came last wait again, while all would outgrow the room."""
        while (rows := self._running.rows) and self.kv_tokens + self.running > self._kv_tokens and self.running > 1:
            last = max(rows, key=lambda row: row.admitted or 0)
            self._running.drop(lambda row, last=last: row is last)
            last.begin_again()
            self._waiting.appendleft(last)


def _same(one: Row, other: Row) -> bool:
    first, second = one.prompt, other.prompt
    return one.keys == other.keys and (list(first.input_ids), list(first.segment_ids)) == (
        list(second.input_ids), list(second.segment_ids)
    )  # fmt: skip


def _shared(one: Row, other: Row) -> int:
    return common_length(one.keys, other.keys) * BLOCK
