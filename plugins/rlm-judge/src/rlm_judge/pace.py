"""How long to wait: between requests (rate limits), and before trying again (backoff, Retry-After)."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import threading
import time

_CHANCE = random.Random()
"""Chance of its own: the trainer's random numbers are not touched."""


def backoff(attempt: int, first: float, longest: float) -> float:
    """Seconds before attempt `attempt` + 1: up to first · 2^attempt, chance decides; never more than `longest`.

    At least half of it is waited, so that a server in trouble is left alone; the rest is drawn, so that a hundred
    requests that failed together do not come back together.
    """
    most = min(longest, first * 2.0 ** min(attempt, 60))
    return most * (0.5 + 0.5 * _CHANCE.random())


def retry_after(header: str | None) -> float | None:
    """What a server asks for in ``Retry-After``, in seconds: a number or a date; None when it says nothing readable.

    >>> retry_after("7"), retry_after("0.5"), retry_after("soon"), retry_after("-3"), retry_after("nan")
    (7.0, 0.5, None, 0.0, None)
    """
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


class Pace:
    """At most so many requests and tokens in any minute: each request waits for its place in line.

    Places are handed out evenly, so no window of a minute holds more than the limit, however the load comes. Of
    several processes each takes its share.

    Args:
        requests: Per minute; None: no limit.
        tokens: Per minute; None: no limit.
    """

    def __init__(self, requests: float | None, tokens: float | None) -> None:
        share = int(os.environ.get("WORLD_SIZE", "1"))
        self._per_request = 60.0 * share / requests if requests else 0.0
        self._per_token = 60.0 * share / tokens if tokens else 0.0
        self._free = 0.0  # when the next place is free, on the monotonic clock
        self._budget = 0.0  # when the tokens handed out so far will have been earned
        self._lock = threading.Lock()

    async def turn(self, tokens: int) -> None:
        """Waits until a request of about `tokens` tokens may be sent."""
        while (wait := self._place(tokens)) > 0:
            await asyncio.sleep(wait)

    def _place(self, tokens: int) -> float:
        """Takes the next place if it is free (0); else how long to wait before asking again."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._free, self._budget) - now
            if wait <= 0:
                self._free = now + self._per_request
                self._budget = now + tokens * self._per_token
            return max(0.0, wait)

    def correct(self, tokens: int) -> None:
        """The last answer took `tokens` more (or fewer) than was thought."""
        with self._lock:
            self._budget += tokens * self._per_token

    def hold(self, seconds: float) -> None:
        """Nobody sends anything for so long: the server has asked for it."""
        with self._lock:
            self._free = max(self._free, time.monotonic() + seconds)


_paces: dict[tuple[object, ...], Pace] = {}


def shared(url: str, requests: float | None, tokens: float | None) -> Pace:
    """The pace of a server, one for all who ask it from this process."""
    return _paces.setdefault((url, requests, tokens), Pace(requests, tokens))
