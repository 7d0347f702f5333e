"""How fast and how much a teacher is asked: calls and tokens a minute, pauses that the server asks for, the budget."""

from __future__ import annotations

import asyncio
import time

BURST_SECONDS = 1.0
"""How much of its rate a bucket may give at once after a quiet time."""


class Bucket:
    """A token bucket, kept as the moment at which all that was taken is paid for (the generic cell rate algorithm).

    Whoever takes from it is told how long to wait, in the order of asking. In any span of T seconds it gives at most
    the rate times (T + BURST_SECONDS), plus what one taker took.

    Args:
        per_minute: how much flows in.
    """

    def __init__(self, per_minute: float) -> None:
        self._rate = per_minute / 60
        self._paid = float("-inf")

    def take(self, amount: float, now: float) -> float:
        """Take an amount; returns the seconds to wait before using it."""
        wait = max(0.0, self._paid - BURST_SECONDS - now)
        self._paid = max(now, self._paid) + amount / self._rate
        return wait

    def give_back(self, amount: float) -> None:
        """What was taken too much; a negative amount is taken on top."""
        self._paid -= amount / self._rate


class Pace:
    """When the next call may start."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = Bucket(requests_per_minute) if requests_per_minute else None
        self._tokens = Bucket(tokens_per_minute) if tokens_per_minute else None
        self._held_until = 0.0

    async def ready(self, tokens: int) -> None:
        """Wait for the turn of a call of about so many tokens."""
        now = time.monotonic()
        waits = [self._requests.take(1, now) if self._requests else 0.0]
        waits += [self._tokens.take(tokens, now) if self._tokens else 0.0]
        await asyncio.sleep(max(waits))
        while (left := self._held_until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def took(self, expected: int, tokens: int) -> None:
        """A call that was expected to take so many tokens took `tokens`."""
        if self._tokens:
            self._tokens.give_back(expected - tokens)

    def hold(self, seconds: float) -> None:
        """Start no call for so long: the server asked for it."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)


class Budget:
    """Tokens that may still be spent. Calls reserve the most that they can take, so that all together keep to it.

    Args:
        limit: the most tokens; None for no limit.
        spent: of them before now.
    """

    def __init__(self, limit: int | None, spent: int) -> None:
        self._limit = float("inf") if limit is None else limit
        self._spent = spent
        self._reserved = 0
        self._changed = asyncio.Condition()

    async def reserve(self, tokens: int) -> bool:
        """Reserve so many, waiting when it depends on what calls under way leave over; False when it is too much."""
        async with self._changed:
            while self._spent + tokens <= self._limit:
                if self._spent + self._reserved + tokens <= self._limit:
                    self._reserved += tokens
                    return True
                await self._changed.wait()
            return False

    async def settle(self, reserved: int, used: int) -> None:
        """End a reservation; so many of it were used."""
        async with self._changed:
            self._reserved -= reserved
            self._spent += used
            self._changed.notify_all()
