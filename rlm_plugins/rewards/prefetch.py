"""Prefetch of rewards: their calls start during generation, so that their time overlaps with decoding.

Results do not change: a started call is used only for an identical request, and all others are made when needed.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any

from rlm_plugins.rewards.columns import Columns, groups_of, select_completions
from rlm_plugins.rewards.fault import validate_scores

MIN_SECONDS = 0.05
"""Asynchronous rewards are prefetched if their last batch took this long; waking a thread per group costs as much."""


def request_key(request: Mapping[str, Any]) -> str:
    """Return the columns of a request as one string; other data are left out."""
    return json.dumps({name: x for name, x in request.items() if isinstance(x, list)}, sort_keys=True, default=repr)


class PendingCalls:
    """Calls that have started, by request."""

    def __init__(self) -> None:
        self._futures: dict[str, Future[Any]] = {}

    def add(self, request: Mapping[str, Any], start: Callable[[], Future[Any]]) -> None:
        """Start the call of a request, unless there is one."""
        key = request_key(request)
        if key not in self._futures:
            self._futures[key] = start()

    def take(self, request: Mapping[str, Any]) -> Future[Any] | None:
        """Remove and return the call of a request; None: it has not started."""
        return self._futures.pop(request_key(request), None) if self._futures else None

    def cancel(self) -> None:
        """Cancel the calls that were not taken; the next batch has other requests."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()


class AsyncReward:
    """Caller of an asynchronous reward on TRL's event loop."""

    def __init__(self, call: Callable[[Columns], Coroutine[Any, Any, Any]], *, by_group: bool) -> None:
        self._call, self.by_group = call, by_group
        self._pending = PendingCalls()
        self._last_seconds, self._seconds = math.inf, 0.0  # of the last batch, and of this one so far

    def begin(self, columns: Columns, loop: asyncio.AbstractEventLoop) -> None:
        """Start the calls of :meth:`call` for the whole groups in these columns, unless they are cheap."""
        if self._last_seconds < MIN_SECONDS:
            return
        for rows in self._requests(columns):
            request = select_completions(columns, rows)
            self._pending.add(request, partial(self._start, request, loop))

    def _start(self, request: Columns, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._timed_call(request), loop)

    async def _timed_call(self, columns: Columns) -> Any:
        start = time.perf_counter()
        try:
            return await self._call(columns)
        finally:
            self._seconds += time.perf_counter() - start

    async def call(self, columns: Columns) -> Any:
        """Return the reward's scores; calls that have not started are made now."""
        try:
            return await self._scores(columns)
        finally:
            self._last_seconds, self._seconds = self._seconds, 0.0

    async def _scores(self, columns: Columns) -> Any:
        requests = self._requests(columns)
        started = [(rows, self._pending.take(select_completions(columns, rows))) for rows in requests]
        self._pending.cancel()
        pending = list(chain.from_iterable(rows for rows, future in started if future is None))
        if sum(map(len, requests)) == len(pending):
            return await self._timed_call(columns)
        scores: dict[int, Any] = {}
        for rows, future in started:
            if future is not None:
                scores |= zip(rows, validate_scores(await asyncio.wrap_future(future), len(rows)), strict=True)
        if pending:
            returned = await self._timed_call(select_completions(columns, pending))
            scores |= zip(pending, validate_scores(returned, len(pending)), strict=True)
        return [scores[row] for row in range(len(scores))]

    def _requests(self, columns: Columns) -> list[list[int]]:
        return groups_of(columns["prompts"]) if self.by_group else [[*range(len(columns["prompts"]))]]
