"""Who may come in: so many answers at a time, and none once the server is stopping."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from rolewise.serving.backend import OverloadedError, UnavailableError


def shutting_down() -> UnavailableError:
    """What is said of a server that is stopping."""
    why = "the server is shutting down"
    return UnavailableError(why, told=why)


class Admission:
    """Counts the answers that are under way or wait, over all models; used on the event loop alone.

    Args:
        limit: the most of them.
    """

    def __init__(self, limit: int) -> None:
        self.stopping = False
        """Whether new requests are turned away; those that were admitted go on."""
        self._limit = limit
        self._inside = 0

    @contextlib.contextmanager
    def admitted(self, answers: int = 1) -> Generator[None]:
        """Within, `answers` more count.

        Raises:
            OverloadedError: when there are too many.
            UnavailableError: when the server is stopping.
        """
        if self.stopping:
            raise shutting_down()
        if self._inside + answers > self._limit:
            raise OverloadedError(
                f"{self._inside} answers are under way or waiting, and the server takes {self._limit}; try again later"
            )
        self._inside += answers
        try:
            yield
        finally:
            self._inside -= answers
