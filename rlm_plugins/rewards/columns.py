"""Columns that rewards are called with, in the form of TRL and in the form of a part, and the call of the part."""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from rlm_plugins.equation.batch import PER_COMPLETION
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.stage import Reward
from rlm_plugins.workers.time_limit import await_within, is_of_call

Columns = Mapping[str, Any]

_RENAMED_BY_TRL = ("prompt", "completion", "completion_ids")
"""Columns that TRL passes to rewards under other names."""
NOT_FOR_REWARDS = ("prompt", "completion", "demonstration")
"""Columns that rewards cannot name; they get ``prompts`` and ``completions`` instead."""
_MESSAGE, _GENERIC = re.compile("dict|mapping|message", re.IGNORECASE), re.compile(r"(\w+)\[([^\[\]]*)\]")
_SOURCES = {
    "prompt_messages": "prompts",
    "completion_messages": "completions",
    "prompt": "prompts",
    "completion": "completions",
}


def reward_columns(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    inputs: Sequence[Mapping[str, Any]],
    **further: Any,
) -> dict[str, Any]:
    """Return the keyword arguments that TRL calls a reward with."""
    columns = {
        "prompts": list(prompts),
        "completions": list(completions),
        "completion_ids": [*map(list, completion_ids)],
    }
    names = [name for name in inputs[0] if name not in _RENAMED_BY_TRL]
    return columns | {name: list(map(itemgetter(name), inputs)) for name in names} | further


def example_data(
    examples: Sequence[Mapping[str, Any]], completions: Sequence[Any], ids: Sequence[Sequence[int]], **further: Any
) -> dict[str, Any]:
    """Return the data of a reward for one completion per example, outside of training: no state, and logs discarded."""
    prompts = [example["prompt"] for example in examples]
    inputs = [{name: x for name, x in example.items() if name not in NOT_FOR_REWARDS} for example in examples]
    return reward_columns(prompts, completions, ids, inputs, **further, **NO_LOGS)


NO_LOGS: Mapping[str, Any] = {"trainer_state": None, "log_extra": lambda *_: None, "log_metric": lambda *_: None}
"""Data of a reward where no trainer runs it: its logs are discarded."""


def text_of(message: Any) -> str:
    """Return a prompt or completion as plain text; of a conversation, all messages of its last role.

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


def texts_of(columns: Columns) -> list[str]:
    """Return the completions as plain text."""
    return [text_of(message) for message in columns["completions"]]


def groups_of(prompts: Sequence[Any]) -> list[list[int]]:
    """Return the indices of consecutive completions with equal prompts."""
    groups = itertools.groupby(range(len(prompts)), key=lambda row: repr(prompts[row]))
    return [list(rows) for _, rows in groups]


def select_completions(columns: Columns, rows: Sequence[int]) -> dict[str, Any]:
    """Return the columns of some completions; other data stay as they are."""
    count = len(columns["completions"])
    if len(rows) == count:
        return dict(columns)
    selected = dict(columns)
    for name, column in columns.items():
        if isinstance(column, list) and len(column) == count:
            selected[name] = [column[row] for row in rows]
    return selected


def as_messages(texts: Sequence[str]) -> list[list[dict[str, str]]]:
    """Return texts as the completions of a chat."""
    return [[{"role": "assistant", "content": text}] for text in texts]


def reads_messages(reward: Reward) -> bool:
    """Return True if a reward gets the completions of a chat as lists of messages: `messages`, or its annotation.

    Text is the default, since a function that reads messages as if they were text does not fail: ``"42" in completion``
    is False for a list of messages. A function that reads text as if it were messages raises.
    """
    return declares_messages(reward.part.target) if reward.messages is None else reward.messages


def declares_messages(function: Any) -> bool:
    """Return True if the annotation of `completions` (or `completion`) has messages, and not text beside them.

    >>> def of_messages(completions: list[list[dict[str, str]]], **columns): ...
    >>> def of_both(completions: list[str] | list[list[dict[str, str]]], **columns): ...
    >>> declares_messages(of_messages), declares_messages(of_both), declares_messages(lambda completions: 0)
    (True, False, False)
    """
    parameters = inspect.signature(function).parameters
    parameter = parameters.get("completions", parameters.get("completion"))
    kind, before = "" if parameter is None else inspect.formatannotation(parameter.annotation), None
    while kind != before:  # `list[x]` becomes `x`, `dict[x]` becomes `dict`
        before, kind = kind, _GENERIC.sub(lambda match: match[1] if _MESSAGE.search(match[1]) else match[2], kind)
    return bool(_MESSAGE.search(kind)) and not re.search(r"\bstr\b", kind)


def part_data(reward: Reward, columns: Columns) -> dict[str, Any]:
    """Return copies of the data that the part takes: completions as text, or as messages if the reward reads them.

    A part that ends in ``**kwargs`` gets all columns, and text beside the messages.
    """
    part, columns, as_text = reward.part.part, dict(columns), not reads_messages(reward)
    if "trainer_state" in columns:
        columns["trainer_state"] = copy.copy(columns["trainer_state"])
    names: Sequence[str] = part.data
    if part.takes_kwargs:
        names = [*columns, "prompt_messages", "completion_messages"] if as_text else [*columns]
    return {name: _datum(name, columns, as_text) for name in names if _SOURCES.get(name, name) in columns}


def columns_and_groups(reward: Reward, columns: Columns) -> tuple[dict[str, Any], list[list[int]]]:
    """Return the columns that the part takes, as they are sent to a worker, and the indices of each group."""
    data = {name: x for name, x in part_data(reward, columns).items() if isinstance(x, list)}
    return data, groups_of(columns["prompts"])


def _datum(name: str, columns: Columns, as_text: bool) -> Any:
    """Return the data of one name, copied so that a part cannot change TRL's."""
    value = columns[_SOURCES.get(name, name)]
    if as_text and name in ("prompts", "completions", *PER_COMPLETION):
        return [text_of(message) for message in value]
    return _copied(value)


def _copied(value: Any) -> Any:
    """Return deep copies of lists and mappings, and other values unchanged."""
    if type(value) is list:
        return value.copy() if not value or isinstance(value[0], int | str) else [_copied(x) for x in value]
    return {name: _copied(x) for name, x in value.items()} if type(value) is dict else value


def call_part(part: Bound, data: Mapping[str, Any]) -> Any:
    """Return the result of a synchronous reward on a batch.

    A part that takes `completion` is called once per completion; a fault stands in place of its score.
    """
    if not part.part.is_per_completion:
        return part.call(data)
    scores: list[Any] = []
    for row in _per_completion(data):
        try:
            scores.append(part.call(row))
        except BaseException as error:
            if not is_of_call(error):
                raise
            scores.append(Fault.from_error(error))
    return scores


async def call_part_async(part: Bound, data: Mapping[str, Any], seconds: float) -> Any:
    """Return the result of an asynchronous reward; calls per completion run concurrently.

    Raises:
        Fault: It exits the process.
        CallTimeout: There was no result in time.
    """
    if not part.part.is_per_completion:
        return await await_within(seconds, _call_without_exit(part, data))
    calls = (await_within(seconds, _call_without_exit(part, row)) for row in _per_completion(data))
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [Fault.from_error(x) if isinstance(x, BaseException) else x for x in results]


def _per_completion(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = {name: x for name, x in data.items() if isinstance(x, list)}
    rows = zip(*columns.values(), strict=True)
    return [{**data, **dict(zip(columns, row, strict=True))} for row in rows]


async def _call_without_exit(part: Bound, data: Mapping[str, Any]) -> Any:
    """Call a reward; a task that exits would end its event loop, and whatever waits for that would hang."""
    try:
        return await part.call(data)
    except (Exception, asyncio.CancelledError):  # after its timeout it is canceled
        raise
    except BaseException as error:
        if not is_of_call(error):
            raise
        raise Fault.from_error(error) from error
