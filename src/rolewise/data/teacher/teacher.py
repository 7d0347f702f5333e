"""The teacher: requests in, results out as they come, each answer paid for once."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolewise.data.teacher.asking import Asking, settled
from rolewise.data.teacher.cache import AnswerCache
from rolewise.data.teacher.checking import check_schema
from rolewise.data.teacher.config import TeacherConfig
from rolewise.data.teacher.requests import Request, Result, estimated_prompt
from rolewise.data.teacher.totals import Estimate, Price, Totals


class Teacher:
    """A model behind an OpenAI-compatible endpoint; use it with `with`.

    Args:
        config: which one, and its limits.
        cache: the JSONL file of its answers; a run that was killed goes on from there.

    Raises:
        ValueError, BlockingIOError, OSError: when `cache` holds something else, is in use, or cannot be written.
    """

    def __init__(self, config: TeacherConfig, cache: str | os.PathLike[str]) -> None:
        self.config = config
        self.totals = Totals()
        """Of all that was asked through this object."""
        self._cache = AnswerCache(Path(cache))
        self._asking: Asking | None = None
        self._busy = False

    def __enter__(self) -> Self:
        self._cache.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking is not None:  # the caller did not take all results
            self._asking.stop()
        self._cache.__exit__(kind, error, trace)

    def answers(self, requests: Iterable[Request], *, progress: bool | None = None) -> Iterator[Result]:
        """One result for each request, as they come: first what the cache has, then in the order of answering.

        The same request twice is asked once, and has two results. Answers are on disk before they come out here, and
        calls go on while the caller works. When the caller stops, or on Ctrl-C, calls under way have two seconds to
        end. A call that a kill interrupts has brought no answer, so it is repeated; all others are not.

        Args:
            requests: what to ask; read to its end first.
            progress: show a bar; by default on a terminal only.

        Raises:
            ImportError: when the extra `teacher` is not installed.
            ValueError: when no key is set, or the endpoint refuses the request or does not know the model.
            PermissionError: when the endpoint does not take the key, or there is no credit left.
            ConnectionError: when the endpoint stays away. Whatever it is, what came is kept.
        """
        from tqdm import tqdm

        if self._busy:
            raise ValueError("this teacher is still asking, and its limits are for one run; take all results first")
        groups: dict[str, list[Request]] = {}
        for request in requests:
            groups.setdefault(request.key(self.config), []).append(request)
        total, began = sum(map(len, groups.values())), time.monotonic()
        # Answers come in bursts, so the time left is by the mean rate (smoothing=0).
        disable = None if progress is None else not progress
        bar = tqdm(total=total, desc=self.config.model, unit="row", dynamic_ncols=True, smoothing=0, disable=disable)
        self._busy = True
        try:
            with closing(self._results(groups)) as results:
                for key, result, cached in results:
                    for index, request in enumerate(groups.pop(key)):
                        free = cached or index > 0
                        self.totals.count_result(result, cached=free)
                        if free and not bar.disable:
                            bar.initial += 1  # does not count towards the rate
                        bar.set_postfix_str(self._postfix(), refresh=False)
                        bar.update()
                        yield replace(result, request=request)
            assert not groups, "a request without a result"
        finally:
            self._busy = False
            bar.close()
            self.totals.seconds += time.monotonic() - began

    def estimate(self, requests: Iterable[Request], price: Price | None = None) -> Estimate:
        """What `answers` would ask; needs neither key nor connection.

        Args:
            requests: the same.
            price: of a million tokens, for the cost.
        """
        count, keys, prompt = 0, set[str](), 0
        for request in requests:
            count += 1
            key = request.key(self.config)
            if key not in keys and settled(self.config, self._cache, request, key)[0] is None:
                keys.add(key)
                prompt += estimated_prompt(request)
        budget, completion = self.config.budget_tokens, len(keys) * self.config.max_tokens
        return Estimate(
            requests=count,
            cached=count - len(keys),
            to_ask=len(keys),
            prompt_tokens=prompt,
            most_completion_tokens=completion,
            attempts=self.config.attempts,
            budget_left=None if budget is None else max(0, budget - self._cache.tokens),
            cost=(prompt * price.prompt + completion * price.completion) / 1e6 if price else None,
        )

    def _results(self, groups: dict[str, list[Request]]) -> Generator[tuple[str, Result, bool]]:
        jobs: dict[str, Request] = {}
        for key, (request, *_) in list(groups.items()):
            check_schema(request.schema)
            result, _ = settled(self.config, self._cache, request, key)
            if result is None:
                jobs[key] = request
            else:
                yield key, result, True
        if not jobs:  # a run that has all its answers needs neither key nor SDK
            return
        key = _key(self.config) if self.config.provider == "openai" else ""
        self._asking = Asking(self.config, key, self._cache, jobs, self.totals)
        try:
            with closing(self._asking.results()) as results:
                for key, result in results:
                    yield key, result, False
        finally:
            self._asking = None

    def _postfix(self) -> str:
        totals = self.totals
        told: list[Any] = [f"{totals.prompt_tokens + totals.completion_tokens:,} tokens"]
        told += [f"{sum(totals.rejected.values()):,} rejected"] if totals.rejected else []
        told += [f"{totals.failed_calls:,} calls failed"] if totals.failed_calls else []
        return ", ".join(told)


def _key(config: TeacherConfig) -> str:
    key = os.environ.get(config.api_key_variable, "").strip()
    if not key:
        raise ValueError(
            f"the environment variable {config.api_key_variable} is not set; export the endpoint's key there (any "
            "word for a local server that wants none)"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):  # HTTP libraries would quote it in their errors
        raise ValueError(f"{config.api_key_variable} holds something that no key has, a blank perhaps; export it again")
    return key
