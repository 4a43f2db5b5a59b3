"""Prefetch of rewards: their calls start during generation, so that their time overlaps with decoding.

Results do not change: a started call is used only for an identical request, and all others are made when needed.

Rewards in worker processes (`processes`): on several cores, and killed at their timeout.

This file is also the program of the workers, run by path: a worker reads the columns of one group per line and prints
its scores. It ends when its input ends, so it never outlives its trainer.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pydantic_core

from rlm_plugins.equation.batch import SAMPLE
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.columns import Columns, call_part, groups_of, select_completions
from rlm_plugins.rewards.fault import Fault, brief, plain_scores, validate_scores
from rlm_plugins.stage import Reward
from rlm_plugins.workers.pool import Pool, Program, shared

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


LOCAL_DATA = ("trainer_state", "episodes", "environments", "log_extra", "log_metric")
"""Data that cannot be sent to another process."""
NO_LIMIT = 86_400.0

Request = dict[str, list[Any]]
"""Columns of one group."""


class ProcessPoolReward:
    """Caller of a reward in its worker processes, one group per request."""

    def __init__(self, reward: Reward) -> None:
        self._seconds = reward.timeout or NO_LIMIT
        self._program, self._size = worker_program(reward.part, reward.label), reward.processes or 1
        self._pending = PendingCalls()

    def begin(self, data: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> None:
        """Start calls that :meth:`call` will make, for groups that are generated before others."""
        for request in _requests(data, groups):
            self._pending.add(request, partial(self._pool.submit, (request,), self._seconds))

    def call(self, data: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> list[Any]:
        """Return a score per completion; of a group that failed, its fault in place of each."""
        requests = _requests(data, groups)
        started = [self._pending.take(request) for request in requests]
        self._pending.cancel()
        pending = [(request,) for request, future in zip(requests, started, strict=True) if future is None]
        replies = iter(self._pool.run(pending, self._seconds))
        scores: list[Any] = []
        for future, group in zip(started, groups, strict=True):
            scores += self._parse(next(replies) if future is None else future.result(), len(group))
        return scores

    @property
    def _pool(self) -> Pool:
        return shared(self._program, self._size)

    def _parse(self, reply: str, count: int) -> list[Any]:
        if reply == "late":
            problem = f"gave no answer within {self._seconds:g} s, and was killed"
            return [Fault(problem, hint="a longer `timeout` beside it", retry=False)] * count
        if reply == "died":
            return [Fault("ended its process: out of memory, a crash, or an exit")] * count
        scores = json.loads(reply)
        if isinstance(scores, dict):
            return [Fault(**scores)] * count
        return [Fault(**score) if isinstance(score, dict) else score for score in scores]


def _requests(data: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> list[Request]:
    return [{name: [*map(column.__getitem__, group)] for name, column in data.items()} for group in groups]


def worker_program(part: Bound, label: str) -> Program:
    """Return the program of a reward's workers, which load the part as this process did."""
    module = sys.modules.get(part.part.target.__module__)
    file = getattr(module, "__file__", None) if part.part.target.__module__.startswith("rlm_file_") else None
    job = {
        "load": [file] if file else [],
        "name": part.part.full_name,
        "knobs": pydantic_core.to_jsonable_python(part.knobs, fallback=repr),
    }
    arguments = (json.dumps(job, sort_keys=True),)
    return Program(Path(__file__), arguments, name=f"process for the reward '{label}'", environment=None)


def check_processes(part: Bound, where: str) -> None:
    """Check that a reward supports worker processes."""
    reason = ""
    if isinstance(part.target, Stateful):
        reason = "it is stateful, and each process would have its own state"
    elif part.setup_targets:
        reason = "it requires the policy, which is not sent"
    elif part.is_async:
        reason = "it is asynchronous: it waits instead of computing"
    elif missing := [name for name in part.part.required_data if name in LOCAL_DATA]:
        reason = f"it requires {missing[0]} ({SAMPLE[missing[0]].partition(':')[0]}), which cannot be sent"
    if reason:
        raise RecipeError(f"'{part.part.name}' does not support `processes`: {reason}", where=f"{where}.processes")


def main() -> None:
    """Load a reward in a worker process, print ``ready``, and score a group per line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reward prints must not mix with the replies
    job = json.loads(sys.argv[1])
    try:
        from rlm_plugins.registry import Registry

        registry = Registry([Path(file) for file in job["load"]])
        part = registry.find("rlm_rewards", job["name"]).bind(job["knobs"])
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), file=out, flush=True)
        return
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        columns, _ = json.loads(line)
        print(json.dumps(_scores_as_json(part, columns)), file=out, flush=True)


def _scores_as_json(part: Bound, columns: dict[str, list[Any]]) -> list[Any] | dict[str, Any]:
    """Return a score, None or the fields of a fault per completion; the fields of a fault of all of them."""
    try:
        scores = plain_scores(call_part(part, columns), len(next(iter(columns.values()))))
    except BaseException as error:
        return _fields_of(Fault.from_error(error))
    return [_fields_of(score) if isinstance(score, Fault) else score for score in scores]


def _fields_of(fault: Fault) -> dict[str, Any]:
    frames = traceback.format_tb(fault.__cause__.__traceback__)[-1:] if fault.__cause__ is not None else []
    problem = f"{fault.problem}\n{''.join(frames)}".rstrip()
    value = fault.value if fault.value is None or type(fault.value) is float else brief(fault.value, 2000)
    return {**fault.texts(), "problem": problem, "invalid_list": fault.invalid_list, "value": value}


if __name__ == "__main__":
    main()
