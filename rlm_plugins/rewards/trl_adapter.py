"""Adapter of a reward part to TRL's `reward_func`: data by name, timeout, guard and prefetch."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.columns import columns_and_groups, part_data, texts_of
from rlm_plugins.rewards.containment import contained
from rlm_plugins.rewards.fault_log import FaultLog
from rlm_plugins.rewards.guard import Columns, Guard, location_of
from rlm_plugins.rewards.per_completion import call_part, call_part_async
from rlm_plugins.rewards.prefetch import AsyncReward
from rlm_plugins.rewards.process_exit import exits_refused
from rlm_plugins.rewards.process_pool import LOCAL_DATA, ProcessPoolReward
from rlm_plugins.rewards.reward_loop import RewardLoop
from rlm_plugins.rewards.score_validation import plain_scores
from rlm_plugins.rewards.timeout import call_with_timeout
from rlm_plugins.rewards.watchdog import DEFAULT, interrupted_after, with_name
from rlm_plugins.stage_settings import Reward

T = TypeVar("T")


def setup_parts(parts: Iterable[Bound], policy: Any, results: Mapping[str, Path], tokenizer: Any = None) -> None:
    """Call `setup` of the parts that have it, before a policy is trained or evaluated.

    Args:
        parts: Of a stage.
        policy: The model.
        results: Name of an earlier stage → its folder.
        tokenizer: Passed where `setup` has a parameter for it.
    """
    from rlm_plugins.dispatch import attribute_errors

    for part in parts:
        for target in part.setup_targets:
            has_parameter = "tokenizer" in inspect.signature(target.setup).parameters
            with attribute_errors(part):
                target.setup(policy, results, **({"tokenizer": tokenizer} if has_parameter else {}))


def trl_reward(reward: Reward, fault_log: FaultLog | None = None) -> Callable[..., Any]:
    """Return `reward` as a function that TRL accepts, named by its label; asynchronous if the part is.

    A function that supports prefetching has an attribute ``begin(columns, loop)``, which starts its calls. That holds
    for asynchronous rewards and those with `processes`, unless `prefetch` is off or they call the policy, which is
    generating meanwhile. Its attribute ``by_group`` is True if ``begin`` may get some groups before the others.

    Args:
        reward: With its `timeout` and `on_error`.
        fault_log: Log of its faults; None: a fault that stops the run is raised at once.
    """
    part, seconds = reward.part, reward.timeout
    processes = None if reward.processes is None else ProcessPoolReward(reward)

    where, loop = location_of(reward), RewardLoop(reward.label, seconds)

    def scored(columns: Columns) -> list[Any]:
        with exits_refused():
            return plain_scores(call_part(part, part_data(reward, columns)), len(columns["completions"]))

    scored = with_name(where, scored)

    async def call(columns: Columns) -> Any:
        if processes is not None:
            return processes.call(*columns_and_groups(reward, columns))
        with contained(reward.label, where, columns.get("trainer_state")):
            if seconds is not None:
                return call_with_timeout(seconds, partial(scored, columns))
            with interrupted_after(DEFAULT):
                return scored(columns)

    async def scored_async(columns: Columns) -> list[Any]:
        with exits_refused():
            returned = await call_part_async(part, part_data(reward, columns), seconds)
            return plain_scores(returned, len(columns["completions"]))

    async def call_async(columns: Columns) -> Any:
        return await loop.run(partial(scored_async, columns))

    by_group = not set(part.part.data) & {*LOCAL_DATA}
    async_reward = AsyncReward(call_async, by_group=by_group)

    def scores(**columns: Any) -> list[float | None]:
        return _run(Guard(reward, call, fault_log).scores(columns, texts_of(columns)))

    async def scores_async(**columns: Any) -> list[float | None]:
        return await Guard(reward, async_reward.call, fault_log).scores(columns, texts_of(columns))

    function: Any = scores_async if part.is_async else scores
    function.__name__ = reward.label
    if not reward.prefetch or part.setup_targets:
        return function  # type: ignore[no-any-return]
    if part.is_async:
        function.begin, function.by_group = async_reward.begin, async_reward.by_group
    elif processes is not None:
        function.begin = lambda columns, loop: processes.begin(*columns_and_groups(reward, columns))
        function.by_group = True
    return function


def compute_scores(function: Callable[..., Any], columns: Columns) -> list[float | None]:
    """Return the scores of a function of :func:`trl_reward`, asynchronous or not; outside of any event loop."""
    scores = function(**columns)
    if inspect.isawaitable(scores):
        scores = asyncio.run(_awaited(scores))
    return scores  # type: ignore[no-any-return]


async def _awaited(result: Awaitable[T]) -> T:
    return await result


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends: `Guard` is asynchronous for both kinds of rewards."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a synchronous reward was suspended")
