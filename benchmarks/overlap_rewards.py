"""Slow rewards for `overlap.py`: one waits for a server, one for a subprocess."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rlm_plugins import hookimpl

AT_ONCE = 4
"""Requests that the server handles at a time."""


def _eighths(ids: Sequence[int]) -> float:
    """Return a score that differs between completions and is exact in binary."""
    return sum(ids) % 8 / 8


class Asked:
    """A reward with one server request per completion, which takes `seconds`; four run at a time."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds, self._server = seconds, asyncio.Semaphore(AT_ONCE)

    async def __call__(self, completion_ids: Sequence[Sequence[int]]) -> list[float]:
        return list(await asyncio.gather(*map(self._answer, completion_ids)))

    async def _answer(self, ids: Sequence[int]) -> float:
        async with self._server:
            await asyncio.sleep(self._seconds)
        return _eighths(ids)


def run(completion_ids: Sequence[Sequence[int]], *, seconds: float) -> list[float]:
    """Block the process for `seconds` per completion, like a program that is started and awaited."""
    for _ in completion_ids:
        time.sleep(seconds)
    return [_eighths(ids) for ids in completion_ids]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"asked": Asked, "run": run}
