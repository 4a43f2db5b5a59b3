"""A reward part as TRL calls it: hands over what the part named, within its time, behind its guard."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlm_plugins.batch import PER_COMPLETION
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault_log import Faults
from rlm_plugins.rewards.guard import Columns, Guard, groups_of
from rlm_plugins.rewards.per_row import awaited_of, said_of
from rlm_plugins.rewards.prefetch import Waiting
from rlm_plugins.rewards.process_pool import HERE_ONLY, Elsewhere
from rlm_plugins.rewards.timeout import within
from rlm_plugins.stage import Reward

T = TypeVar("T")
_OWN = ("prompt", "completion", "completion_ids")
"""Columns that TRL hands to rewards under other names."""
_SOURCES = {
    "prompt_messages": "prompts",
    "completion_messages": "completions",
    "prompt": "prompts",
    "completion": "completions",
}


def introduce(parts: Iterable[Bound], policy: Any, results: Mapping[str, Path], tokenizer: Any = None) -> None:
    """Shows a policy, about to be trained or judged, to the parts that have a method `setup`; its tokenizer if
    asked."""
    from rlm_plugins.dispatch import attribute_errors

    for part in parts:
        for guest in part.setup_targets:
            asked = {"tokenizer": tokenizer} if "tokenizer" in inspect.signature(guest.setup).parameters else {}
            with attribute_errors(part):
                guest.setup(policy, results, **asked)


def trl_reward(reward: Reward, book: Faults | None = None) -> Callable[..., Any]:
    """`reward` as a function TRL accepts; named by its label, asynchronous when the part is.

    One that need not be waited for at once (it is asynchronous, or has `processes`) has an attribute ``begin``, unless
    its `overlap` is off or it works with the policy, which is at work itself meanwhile: called with the columns and
    TRL's event loop it asks, and the answer is there, or nearer, when TRL calls. ``by_group`` says whether it may be
    called with some of the groups: those written before the others.

    Args:
        reward: With its `timeout` and `on_error`.
        book: Where its faults are written down; None: one that stops the run is raised at once.
    """
    bound, seconds = reward.part, reward.timeout
    elsewhere = None if reward.processes is None else Elsewhere(reward)

    async def ask(columns: Columns) -> Any:
        if elsewhere is not None:
            return elsewhere.ask(*_groups(reward, columns))
        answer = partial(said_of, bound, _given(reward, columns))
        return answer() if seconds is None else within(seconds, answer)

    async def ask_async(columns: Columns) -> Any:
        return await awaited_of(bound, _given(reward, columns), seconds)

    waiting = Waiting(ask_async, by_group=not {*bound.part.needs, *bound.part.welcomes} & {*HERE_ONLY})

    def call(**columns: Any) -> list[float | None]:
        return _run(Guard(reward, ask, book).scores(columns, _texts(columns)))

    async def call_async(**columns: Any) -> list[float | None]:
        return await Guard(reward, waiting.ask, book).scores(columns, _texts(columns))

    function: Any = call_async if bound.waits else call
    function.__name__ = reward.label
    if not reward.prefetch or bound.setup_targets:
        return function  # type: ignore[no-any-return]
    if bound.waits:
        function.begin, function.by_group = waiting.begin, waiting.by_group
    elif elsewhere is not None:
        function.begin = lambda columns, loop: elsewhere.begin(*_groups(reward, columns))
        function.by_group = True
    return function


def columns_of(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    inputs: Sequence[Mapping[str, Any]],
    **said: Any,
) -> dict[str, Any]:
    """What TRL calls a reward with.

    Args:
        prompts, completions, completion_ids: One per row.
        inputs: The columns of each row.
        **said: What comes with them: further columns, and what is no column (the trainer's state, its ledger).
    """
    found = {"prompts": list(prompts), "completions": list(completions), "completion_ids": [*map(list, completion_ids)]}
    return found | {name: [row[name] for row in inputs] for name in inputs[0] if name not in _OWN} | said


def answered(function: Callable[..., Any], columns: Columns) -> list[float | None]:
    """What a function of :func:`trl_reward` says of a batch, asynchronous or not; outside of any event loop."""
    said = function(**columns)
    if inspect.isawaitable(said):
        said = asyncio.run(_awaited(said))
    return said  # type: ignore[no-any-return]


async def _awaited(said: Awaitable[T]) -> T:
    return await said


def _run(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits: one guard serves both kinds of rewards."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a reward that is not asynchronous waited")


def text_of(message: Any) -> str:
    """A prompt or completion as plain text: of a conversation, what the last speaker's side said.

    >>> text_of("4"), text_of([{"role": "assistant", "content": "4"}])
    ('4', '4')
    """
    if isinstance(message, str):
        return message
    role = message[-1]["role"] if message else ""
    role = "assistant" if role == "tool" else role
    return "\n".join(_content(m.get("content")) for m in message if m["role"] == role)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, Mapping))
    return content or ""


def _texts(columns: Columns) -> list[str]:
    return [text_of(message) for message in columns["completions"]]


def _given(reward: Reward, columns: Columns) -> dict[str, Any]:
    """What the part named; one written for TRL gets everything, in lists of its own."""
    part = reward.part.part
    if part.takes_everything:
        return {name: list(x) if isinstance(x, list) else x for name, x in columns.items()}
    wanted = (*part.needs, *part.welcomes)
    return {name: _datum(name, columns) for name in wanted if _SOURCES.get(name, name) in columns}


def _groups(reward: Reward, columns: Columns) -> tuple[dict[str, Any], list[list[int]]]:
    """What can be sent to another process of what the part named, and which rows belong together."""
    given = {name: x for name, x in _given(reward, columns).items() if isinstance(x, list)}
    return given, groups_of(columns["prompts"])


def _datum(name: str, columns: Columns) -> Any:
    """One named piece of data; lists are copied, so that a part cannot change what TRL goes on to use."""
    value = columns[_SOURCES.get(name, name)]
    if name in ("prompts", "completions", *PER_COMPLETION):
        return [text_of(message) for message in value]
    return list(value) if isinstance(value, list) else value
