"""Answers to many prompts: shared prefixes computed once, rows of like length together, finished rows dropped.

The attacks on one sample begin alike. Rows are cut into clusters that share a prefix (`prefixes`), each prefix is
computed once, and what is left of a row is computed on top of a copy of its keys and values. A batch has no padding
between a row's prefix and its rest: the rest of all rows is made equally long by computing a few tokens of shorter
rows again. So positions and windows of attention are those of a row on its own, and so are greedy answers (up to
rounding, where two tokens are equally likely).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from rolewise.engine.decoding import Answer, Growing, Request, require_finite
from rolewise.engine.kv import (
    Prefix,
    cut_rows,
    empty_cache,
    join_rows,
    keep_rows,
    kept_in_place,
)
from rolewise.engine.prefixes import Cluster, clusters, passes
from rolewise.engine.reader import Reader
from rolewise.engine.side_by_side import side_by_side
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.loss import head_only_at

_LIKE_LENGTH = 128
"""Rows whose lengths differ by less may stand in one batch."""


class Engine:
    """Answers prompts with a segmented model.

    Args:
        model: the model, in evaluation mode.
        tokenizer: its tokenizer.
        batch_size: rows that are computed together.
        share_prefixes: whether to compute common prefixes once.
        wrote: is told after each step how many tokens were written, of whatever answers.
        workers: batches that are computed side by side; by default one for each of PyTorch's threads on a CPU, and
            one at a time elsewhere.
    """

    def __init__(
        self,
        model: SegmentedCausalLM,
        tokenizer: Any,
        *,
        batch_size: int = 32,
        share_prefixes: bool = True,
        wrote: Callable[[int], None] | None = None,
        workers: int | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("workers", 1 if workers is None else workers)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self.model, self.tokenizer = model, tokenizer
        self._reader = Reader(model, tokenizer)
        # A model that keeps more than keys and values of its past runs a row at a time.
        self.batch_size = batch_size if self._reader.keys_only else 1
        self._wrote = wrote
        # Of other memories some belong to the modules (RecurrentGemma): two batches at a time would share them.
        alone = model.device.type != "cpu" or not self._reader.keys_only
        self._workers = 1 if alone else workers or torch.get_num_threads()
        self._counting = threading.Lock()
        self._share = share_prefixes and self._reader.keys_only
        self._stops = self._reader.stops

    def answers(self, requests: Sequence[Request]) -> Iterator[tuple[int, Answer]]:
        """Answer all requests; yields (index, answer) as rows end.

        Raises:
            PromptTooLongError: when a prompt does not fit into the model's positions; before anything is computed.
            NotFiniteError: when the model's logits are no numbers.
        """
        growing = [Growing(request, self.tokenizer, self._stops, self.room_for(request)) for request in requests]
        return self._run(growing)

    @property
    def positions(self) -> int | None:
        """How many tokens the model can read and write in all; None when there is no limit."""
        return self._reader.positions

    def room_for(self, request: Request) -> int | None:
        """How many tokens the model's positions leave for an answer; None when there is no limit.

        Raises:
            PromptTooLongError: when the prompt fills them all.
        """
        return self._reader.room_for(request)

    @property
    def computed_tokens(self) -> int:
        """Positions computed so far, padding included: what prefix sharing saves shows here."""
        return self._reader.computed_tokens

    def _run(self, growing: list[Growing]) -> Iterator[tuple[int, Answer]]:
        requests = [one.request for one in growing]
        plan = self._plan(requests)
        rest = [len(request.input_ids) for request in requests]
        home = dict[int, int]()
        for number, cluster in enumerate(plan):
            for row in cluster.rows:
                home[row] = number
                rest[row] -= cluster.length
        # A short row beside a long one attends to padding at every step; the rest of a prompt is read in passes anyway.
        order = sorted(home, key=lambda row: (-(len(requests[row].input_ids) // _LIKE_LENGTH), -rest[row], home[row]))
        batches = [
            sorted(order[at : at + self.batch_size], key=lambda row: -rest[row])
            for at in range(0, len(order), self.batch_size)
        ]
        prefixes = self._prefixes(requests, plan)
        pending = Counter(home.values())

        def answered(batch: Sequence[int]) -> Iterator[tuple[int, Answer] | None]:
            states = [growing[row] for row in batch]
            for place in self._batch(states, [prefixes.get(home[row]) for row in batch]):
                yield None if place is None else (batch[place], states[place].answer())

        for row, answer in side_by_side([partial(answered, batch) for batch in batches], self._workers):
            yield row, answer
            pending[home[row]] -= 1
            if not pending[home[row]]:
                prefixes.pop(home[row], None)

    def _plan(self, requests: Sequence[Request]) -> list[Cluster]:
        if not self._share:
            return [Cluster((row,), 0) for row in range(len(requests))]
        return clusters([(request.input_ids, request.segment_ids) for request in requests])

    def _prefixes(self, requests: Sequence[Request], plan: Sequence[Cluster]) -> dict[int, Prefix]:
        """The keys and values of each cluster's prefix, by the cluster's number."""
        wanted = sorted((number for number, cluster in enumerate(plan) if cluster.length),
                        key=lambda number: -plan[number].length)  # fmt: skip

        def computed(chosen: Sequence[int]) -> Iterator[tuple[int, Prefix]]:
            cache = empty_cache()
            lengths = [plan[number].length for number in chosen]
            rows = [requests[plan[number].rows[0]] for number in chosen]
            self._reader.read(rows, lengths, [0] * len(chosen), cache)
            yield from zip(chosen, cut_rows(cache, lengths), strict=True)

        cuts: list[Sequence[int]] = []
        for at in range(0, len(wanted), self.batch_size):
            chosen = wanted[at : at + self.batch_size]
            widths = [plan[number].length for number in chosen]
            cuts += [chosen[begin:end] for begin, end in passes(widths, self._reader.pass_cost)]
        return dict(side_by_side([partial(computed, cut) for cut in cuts], self._workers))

    @torch.inference_mode()
    def _batch(self, states: list[Growing], shared: list[Prefix | None]) -> Iterator[int | None]:
        """Run a batch to its end; yields the places of rows as they end, and None after each step."""
        lengths = [len(state.request.input_ids) for state in states]
        logits, cache, mask = self._read(states, shared, lengths)
        alive = list(range(len(states)))
        positions = torch.tensor(lengths, device=self.model.device)
        while True:
            tokens = _choose([states[place] for place in alive], logits)
            if self._wrote is not None:
                with self._counting:
                    self._wrote(len(alive))
            ended = [place for place in alive if states[place].ending is not None]
            yield from ended
            kept = kept_in_place([states[place].ending is None for place in alive])
            if not kept:
                return
            if len(kept) < len(alive):
                keep_rows(cache, kept)
                rows = torch.tensor(kept, device=mask.device)
                mask, positions, tokens = mask[rows], positions[rows], tokens[rows]
                alive = [alive[at] for at in kept]
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            logits, cache = self._reader.step(tokens, mask, positions, cache)
            positions = positions + 1
            yield None

    def _read(
        self, states: Sequence[Growing], shared: Sequence[Prefix | None], lengths: Sequence[int]
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Compute what is left of each prompt, rows of like length in one pass; as `Reader.read` returns it."""
        widths = [
            length - (prefix[0][0].shape[1] if prefix else 0) for length, prefix in zip(lengths, shared, strict=True)
        ]
        cut = passes(widths, self._reader.pass_cost)
        done: list[tuple[torch.Tensor, Any, torch.Tensor]] = []
        for begin, end in cut:
            some, prefixes = lengths[begin:end], shared[begin:end]
            settled = [
                max(0, length - widths[begin]) if prefix else 0 for length, prefix in zip(some, prefixes, strict=True)
            ]
            cache = join_rows(prefixes, settled) if any(settled) else self._reader.new_cache()
            done.append(self._reader.read([state.request for state in states[begin:end]], some, settled, cache))
        if len(done) == 1:
            return done[0]
        rows = [
            row
            for (begin, end), (_, cache, _) in zip(cut, done, strict=True)
            for row in cut_rows(cache, lengths[begin:end], copy=False)
        ]
        mask = torch.zeros((len(lengths), max(lengths)), dtype=torch.long, device=self.model.device)
        for row, length in enumerate(lengths):
            mask[row, -length:] = 1
        return torch.cat([logits for logits, _, _ in done]), join_rows(rows, lengths), mask

    def logprobs(
        self, rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]
    ) -> Iterator[tuple[int, float]]:
        """The mean log-likelihood of marked tokens, teacher-forced, the head applied to these only.

        Args:
            rows: (ids, segments, mask) each, of equal length; mask is 1 for the tokens to score.

        Yields:
            (index, nats per token), a batch at a time.
        """
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row][0]))
        for at in range(0, len(order), self.batch_size):
            chosen = order[at : at + self.batch_size]
            width = len(rows[chosen[0]][0])
            columns = [
                torch.tensor([_padded(one, width, one[0] if column < 2 else 0) for one in column_of])
                for column, column_of in enumerate(zip(*(rows[row] for row in chosen), strict=True))
            ]
            yield from zip(chosen, self._logprobs(*(column.to(self.model.device) for column in columns)), strict=True)

    @torch.inference_mode()
    def _logprobs(self, ids: torch.Tensor, segments: torch.Tensor, marked: torch.Tensor) -> list[float]:
        wanted = marked[:, 1:].bool()
        # Padding stands on the right, where a causal model does not see it from the tokens before.
        with head_only_at(self.model, wanted):
            logits = self.model(input_ids=ids, segment_ids=segments, use_cache=False).logits
        chances = logits.view(-1, logits.shape[-1]).float().log_softmax(-1)
        taken = chances.gather(1, ids[:, 1:][wanted][:, None])[:, 0]
        return [float(one.mean()) for one in taken.split(wanted.sum(1).tolist())]


def _padded(values: Sequence[int], width: int, fill: int) -> list[int]:
    return [*values, *[fill] * (width - len(values))]


def _choose(states: Sequence[Growing], logits: torch.Tensor) -> torch.Tensor:
    """The next token of each row, [rows], from logits [rows, vocabulary]; the rows take it."""
    values, likeliest = (column.tolist() for column in logits.max(-1))
    for value in values:
        require_finite(value)
    tokens = [state.take(logits[row], likeliest[row]) for row, state in enumerate(states)]
    return torch.tensor(tokens, device=logits.device)
