"""Waiting times: between requests (rate limits), and before retries (backoff, Retry-After)."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import threading
import time

_RNG = random.Random()
"""A generator of its own, so that the trainer's RNG state does not change."""


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the seconds before attempt `attempt` + 1: a random time up to first · 2^attempt, at most `longest`.

    At least half of that bound is waited, which spares an overloaded server. The rest is random, so that many requests
    that failed together are not retried together.
    """
    bound = min(longest, first * 2.0 ** min(attempt, 60))
    return bound * (0.5 + 0.5 * _RNG.random())


def retry_after(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, a number or a date; None if it is missing or malformed.

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


class RateLimiter:
    """A limit of requests and tokens per minute; each request waits for its slot.

    Slots are spaced evenly, so no window of a minute exceeds the limit whatever the load. Several processes share it
    evenly.

    Args:
        requests: Per minute; None: no limit.
        tokens: Per minute; None: no limit.
    """

    def __init__(self, requests: float | None, tokens: float | None) -> None:
        share = int(os.environ.get("WORLD_SIZE", "1"))
        self._per_request = 60.0 * share / requests if requests else 0.0
        self._per_token = 60.0 * share / tokens if tokens else 0.0
        self._free = 0.0  # time of the next free slot, on the monotonic clock
        self._budget = 0.0  # time by which the token limit allows the tokens used so far
        self._lock = threading.Lock()

    async def acquire(self, tokens: int) -> None:
        """Wait until a request of about `tokens` tokens may be sent."""
        while (wait := self._reserve(tokens)) > 0:
            await asyncio.sleep(wait)

    def _reserve(self, tokens: int) -> float:
        """Reserve the next slot if it is free (0), else return the seconds to wait before the next attempt."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._free, self._budget) - now
            if wait <= 0:
                self._free = now + self._per_request
                self._budget = now + tokens * self._per_token
            return max(0.0, wait)

    def correct(self, tokens: int) -> None:
        """Correct the last request's estimate by `tokens`."""
        with self._lock:
            self._budget += tokens * self._per_token

    def pause(self, seconds: float) -> None:
        """Pause all requests, as the server requested."""
        with self._lock:
            self._free = max(self._free, time.monotonic() + seconds)


_limiters: dict[tuple[object, ...], RateLimiter] = {}


def shared(url: str, requests: float | None, tokens: float | None) -> RateLimiter:
    """Return the rate limiter of a server, shared by all judges of this process."""
    return _limiters.setdefault((url, requests, tokens), RateLimiter(requests, tokens))
