"""Whoever shows how far an evaluation is hears of it here."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol


class Watcher(Protocol):
    """Whoever shows how far an evaluation is."""

    def expect(self, answers: int) -> None:
        """So many answers will come."""

    def answered(self, known: bool) -> None:
        """One has come; `known` when it was on disk already."""

    def wrote(self, tokens: int) -> None:
        """Our model wrote so many tokens more, of answers that may not be finished; called from its thread."""


_watchers: list[Watcher] = []


@contextmanager
def watched_by(watcher: Watcher) -> Generator[None]:
    """Within, `watcher` hears of every answer to our suites."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextmanager
def unwatched() -> Generator[None]:
    """Within, nobody hears of anything: a task is made, and not run."""
    watchers, _watchers[:] = list(_watchers), []
    try:
        yield
    finally:
        _watchers[:] = watchers


def expect_answers(count: int) -> None:
    """Tell the watchers that so many answers will come."""
    for watcher in _watchers:
        watcher.expect(count)


def tell_answered(known: bool) -> None:
    """Tell the watchers that an answer has come."""
    for watcher in _watchers:
        watcher.answered(known)


def tell_wrote(tokens: int) -> None:
    """Tell the watchers that tokens were written."""
    for watcher in list(_watchers):
        watcher.wrote(tokens)
