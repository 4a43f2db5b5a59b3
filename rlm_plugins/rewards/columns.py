"""Columns that rewards are called with: in the form of TRL, and in the form of a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from rlm_plugins.batch import PER_COMPLETION
from rlm_plugins.rewards.guard import Columns, groups_of
from rlm_plugins.stage_settings import Reward

_RENAMED_BY_TRL = ("prompt", "completion", "completion_ids")
"""Columns that TRL passes to rewards under other names."""
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
    """Return the keyword arguments that TRL calls a reward with.

    Args:
        prompts, completions, completion_ids: One per completion.
        inputs: The columns of each.
        **further: Further columns, and other data (the trainer's state, its metrics log).
    """
    columns = {
        "prompts": list(prompts),
        "completions": list(completions),
        "completion_ids": [*map(list, completion_ids)],
    }
    names = [name for name in inputs[0] if name not in _RENAMED_BY_TRL]
    return columns | {name: list(map(itemgetter(name), inputs)) for name in names} | further


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


def part_data(reward: Reward, columns: Columns) -> dict[str, Any]:
    """Return the data that the part takes; a TRL reward function receives copies of all columns."""
    part = reward.part.part
    if part.takes_kwargs:
        return {name: _copied(x) for name, x in columns.items()}
    names = part.data
    return {name: _datum(name, columns) for name in names if _SOURCES.get(name, name) in columns}


def columns_and_groups(reward: Reward, columns: Columns) -> tuple[dict[str, Any], list[list[int]]]:
    """Return the columns that the part takes, as they are sent to a worker, and the indices of each group."""
    data = {name: x for name, x in part_data(reward, columns).items() if isinstance(x, list)}
    return data, groups_of(columns["prompts"])


def _datum(name: str, columns: Columns) -> Any:
    """Return the data of one name, copied so that a part cannot change TRL's."""
    value = columns[_SOURCES.get(name, name)]
    if name in ("prompts", "completions", *PER_COMPLETION):
        return [text_of(message) for message in value]
    return _copied(value)


def _copied(value: Any) -> Any:
    """Return deep copies of lists and mappings, and other values unchanged."""
    if type(value) is list:
        return value.copy() if not value or isinstance(value[0], int | str) else [_copied(x) for x in value]
    return {name: _copied(x) for name, x in value.items()} if type(value) is dict else value
