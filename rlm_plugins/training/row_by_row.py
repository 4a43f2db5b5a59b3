"""A reward of one completion: it is asked about each row, and what goes wrong on one costs that row alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.registry.parts import Bound
from rlm_plugins.training.faults import Fault


def said_of(reward: Bound, given: Mapping[str, Any]) -> Any:
    """What a reward says of a batch; a coroutine where it is asynchronous.

    Who names `completion` is asked about each row (asynchronous: about all of them at once); where it fails, its fault
    stands in place of the score.

    Args:
        reward: With its knobs.
        given: What it named: columns, and what is no column.
    """
    if not reward.part.by_row:
        return reward.call(given)
    count = len(given["completion"])
    rows = [{name: x[row] if isinstance(x, list) else x for name, x in given.items()} for row in range(count)]
    return _together(reward, rows) if reward.waits else [_one(reward, row) for row in rows]


def _one(reward: Bound, row: Mapping[str, Any]) -> Any:
    try:
        return reward.call(row)
    except (Exception, SystemExit) as error:
        return Fault.of(error)


async def _together(reward: Bound, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    said = await asyncio.gather(*(reward.call(row) for row in rows), return_exceptions=True)
    return [Fault.of(each) if isinstance(each, BaseException) else each for each in said]
