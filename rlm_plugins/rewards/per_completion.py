"""Calls of a reward part: on the batch, or on each completion, where a fault only affects that completion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.process_exit import belongs_to_reward
from rlm_plugins.rewards.timeout import await_with_timeout


def call_part(reward: Bound, data: Mapping[str, Any]) -> Any:
    """Return the result of a synchronous reward on a batch.

    A part that takes `completion` is called once per completion; a fault stands in place of its score.

    Args:
        reward: With its knobs.
        data: Columns and other data that it takes.
    """
    if reward.part.is_per_completion:
        return [_score(reward, row) for row in _per_completion(data)]
    return reward.call(data)


async def call_part_async(reward: Bound, data: Mapping[str, Any], seconds: float | None = None) -> Any:
    """Return the result of an asynchronous reward; calls per completion run concurrently.

    Args:
        reward: With its knobs.
        data: Columns and other data that it takes.
        seconds: Timeout of each call.

    Raises:
        Fault: It exits the process.
        CallTimeout: There was no result in time.
    """
    if not reward.part.is_per_completion:
        return await _call(reward, data, seconds)
    calls = (_call(reward, row, seconds) for row in _per_completion(data))
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [Fault.from_error(x) if isinstance(x, BaseException) else x for x in results]


def _per_completion(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = {name: x for name, x in data.items() if isinstance(x, list)}
    rows = zip(*columns.values(), strict=True)
    return [{**data, **dict(zip(columns, row, strict=True))} for row in rows]


def _score(reward: Bound, row: Mapping[str, Any]) -> Any:
    try:
        return reward.call(row)
    except BaseException as error:
        if not belongs_to_reward(error):
            raise
        return Fault.from_error(error)


async def _call(reward: Bound, data: Mapping[str, Any], seconds: float | None) -> Any:
    call = _call_without_exit(reward, data)
    return await (call if seconds is None else await_with_timeout(seconds, call))


async def _call_without_exit(reward: Bound, data: Mapping[str, Any]) -> Any:
    """Call a reward; a task that exits would end its event loop, and whatever waits for that would hang."""
    try:
        return await reward.call(data)
    except (Exception, asyncio.CancelledError):  # after its timeout it is canceled
        raise
    except BaseException as error:
        if not belongs_to_reward(error):
            raise
        raise Fault.from_error(error) from error
