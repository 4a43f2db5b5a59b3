"""A reward of one completion: it is asked about each row, and what goes wrong on one costs that row alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.timeout import within_async


def said_of(reward: Bound, given: Mapping[str, Any]) -> Any:
    """What a reward says of a batch that need not be waited for.

    Who names `completion` is asked about each row; where it fails, its fault stands in place of the score.

    Args:
        reward: With its knobs.
        given: What it named: columns, and what is no column.
    """
    return [_one(reward, row) for row in _rows(given)] if reward.part.by_row else reward.call(given)


async def awaited_of(reward: Bound, given: Mapping[str, Any], seconds: float | None = None) -> Any:
    """The same of one that is asynchronous: about all rows at once, each of which may take `seconds`.

    Raises:
        Fault: It wants to end the process.
        Late: It took longer.
    """
    if not reward.part.by_row:
        return await _in_time(reward, given, seconds)
    answers = (_in_time(reward, row, seconds) for row in _rows(given))
    said = await asyncio.gather(*answers, return_exceptions=True)
    return [Fault.of(each) if isinstance(each, BaseException) else each for each in said]


def _rows(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    count = len(given["completion"])
    return [{name: x[row] if isinstance(x, list) else x for name, x in given.items()} for row in range(count)]


def _one(reward: Bound, row: Mapping[str, Any]) -> Any:
    try:
        return reward.call(row)
    except (Exception, SystemExit) as error:
        return Fault.of(error)


async def _in_time(reward: Bound, given: Mapping[str, Any], seconds: float | None) -> Any:
    answer = _staying(reward, given)
    return await (answer if seconds is None else within_async(seconds, answer))


async def _staying(reward: Bound, given: Mapping[str, Any]) -> Any:
    """A task that exits takes its event loop along, and who waits for that waits forever."""
    try:
        return await reward.call(given)
    except SystemExit as error:
        raise Fault.of(error) from error
