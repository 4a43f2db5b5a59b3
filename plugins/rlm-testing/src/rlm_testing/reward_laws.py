"""Laws of rewards, called as in training (:func:`rlm_plugins.rewards.trl_adapter.trl_reward`), and their columns."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from rlm_plugins.errors import PluginError
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.columns import call_part, call_part_async, part_data
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.specs import Episode
from rlm_plugins.stage import Reward
from rlm_plugins.workers.time_limit import DEFAULT
from rlm_testing.law import Draw, LawBroken, Subject, law, load_checkpoint

UNUSUAL = (
    *("", " ", "\n\n", "\x00", "\ufffd", "\u202e4", "👩‍👩‍👧", "²½", "١٢٣", "1,000", "-0", "1e999", "NaN", "∞", "1/0"),
    *("<answer></answer>", "</answer><answer>", "<answer>4", "\\boxed{", "{{{%s", "(" * 200, "9" * 5000, "a " * 20000),
)
"""Completions that no data set contains, and every training run does."""

Columns = dict[str, Any]


def sample_columns(subject: Subject, draw: Draw) -> Columns:
    """Return columns as TRL passes them: whole groups, each of one example."""
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    strategies = _strategies(subject)
    texts = [draw(strategies["completions"]) for _ in range(size * groups)]
    chat = draw(st.booleans())
    questions = [draw(strategies["prompts"]) for _ in range(groups)]
    columns: Columns = {
        "prompts": [_message("user", text, chat) for text in questions for _ in range(size)],
        "completions": [_message("assistant", text, chat) for text in texts],
        "completion_ids": [list(text.encode())[:100] for text in texts],
        "episodes": [Episode(None, "", turn_rewards=[float(len(text) % 3), 1.0]) for text in texts],
        "trainer_state": SimpleNamespace(global_step=draw(st.integers(0, 9)), epoch=0.0, max_steps=10),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    for name in sorted(strategies.keys() - {"prompts", "completions"}):
        values = {text: draw(strategies[name]) for text in dict.fromkeys(questions)}  # one example per prompt
        columns[name] = [values[text] for text in questions for _ in range(size)]
    return columns


def strategy_of(values: Any) -> st.SearchStrategy[Any]:
    """Return the strategy of a column that is described by its values, or by a strategy."""
    return values if isinstance(values, st.SearchStrategy) else st.sampled_from(list(values))


def _message(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _strategies(subject: Subject) -> dict[str, st.SearchStrategy[Any]]:
    declared = {name: strategy_of(values) for name, values in subject.columns.items()}
    unusual = st.sampled_from(UNUSUAL) | st.text(max_size=20)
    completions = declared.get("completions")
    return {
        "prompts": st.sampled_from(["2*2=", "2*3=", ""]),
        **declared,
        "completions": completions | unusual if completions is not None else unusual,
    }


def require_columns(subject: Subject) -> None:
    """Check that all columns of a reward are described.

    Raises:
        PluginError: One is not; with the argument to add.
    """
    supplied = {*subject.part.sample} - {"environments"} | {*subject.columns}
    for name in subject.part.required_data if subject.part.hook == "rlm_rewards" else ():
        if name not in supplied:
            raise PluginError(
                f"'{subject.part.name}' requires the column '{name}'",
                where="conformance",
                hint=f"describe the values of such a column: columns={{'{name}': [value, value, …]}}",
            )


def _example_data(columns: Columns) -> dict[str, object]:
    """Return the columns that are data, for printing."""
    return {name: value for name, value in columns.items() if isinstance(value, list) and name != "completion_ids"}


def select(columns: Columns, indices: list[int]) -> Columns:
    """Return the columns at `indices`."""
    return {k: [v[i] for i in indices] if isinstance(v, list) else v for k, v in columns.items()}


def _scores(subject: Subject, columns: Columns) -> list[float | None]:
    """Return the scores of a new instance of the reward."""
    return _call(trl_reward(Reward(subject.part.name, subject.fresh())), columns)


def _call(reward: Any, columns: Columns) -> list[float | None]:
    try:
        returned: Any = reward(**columns)
        result: list[float | None] = asyncio.run(returned) if inspect.iscoroutine(returned) else returned
    except Exception as error:
        raise LawBroken(str(error), _example_data(columns)) from error
    return result


def equals(reference: Subject, subject: Subject, draw: Draw) -> None:
    """Check that a reward equals another one."""
    columns = sample_columns(subject, draw)
    _check_equal(columns, _scores(reference, columns), _scores(subject, columns), f"beside `{reference.part.name}`")


def _check_equal(columns: Columns, x: list[float | None], y: list[float | None], what: str) -> None:
    if len(x) != len(y) or not all(map(_is_close, x, y)):
        raise LawBroken(f"expected {x}, got {y} {what}", _example_data(columns))


def _is_close(x: float | None, y: float | None) -> bool:
    """Return True if two scores are equal up to the rounding of a model under another padding or batch size."""
    if x is None or y is None:
        return x is y
    return math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-5)


@law("rlm_rewards")
def numbers(subject: Subject, draw: Draw) -> None:
    """Check that it returns a finite number, or None, per completion; also for empty, huge and unusual ones."""
    _scores(subject, sample_columns(subject, draw))


@law("rlm_rewards")
def order(subject: Subject, draw: Draw) -> None:
    """Check that the order of the completions does not matter."""
    columns = sample_columns(subject, draw)
    permutation = draw(st.permutations(range(len(columns["completions"]))))
    full = _scores(subject, columns)
    _check_equal(
        columns, [full[i] for i in permutation], _scores(subject, select(columns, permutation)), "in another order"
    )


@law("rlm_rewards")
def isolation(subject: Subject, draw: Draw) -> None:
    """Check that other groups change nothing; which of them share a process is arbitrary."""
    columns = sample_columns(subject, draw)
    full = _scores(subject, columns)
    prompts = [repr(prompt) for prompt in columns["prompts"]]
    for prompt in dict.fromkeys(prompts):
        members = [i for i, other in enumerate(prompts) if other == prompt]
        alone = _scores(subject, select(columns, members))
        _check_equal(columns, [full[i] for i in members], alone, f"for {prompt} alone")


@law("rlm_rewards")
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that equal completions get equal scores, whatever the state of the global random generators."""
    columns = sample_columns(subject, draw)
    first = _scores(subject, columns)
    random.random(), np.random.random(), torch.rand(1)  # each call restores them, so that no reward changes a run
    _check_equal(columns, first, _scores(subject, columns), "the second time")


@law("rlm_rewards")
def purity(subject: Subject, draw: Draw) -> None:
    """Check that its data are unchanged; in training it gets copies, elsewhere it may not."""
    columns = sample_columns(subject, draw)
    reward = Reward(subject.part.name, subject.fresh())
    data = part_data(reward, columns)
    lists = {name: value for name, value in data.items() if isinstance(value, list)}
    before = copy.deepcopy(lists)
    try:
        if reward.part.is_async:
            asyncio.run(call_part_async(reward.part, data, DEFAULT))
        else:
            call_part(reward.part, data)
    except Exception as error:
        raise LawBroken(str(error), _example_data(columns)) from error
    if before != lists:
        raise LawBroken(f"it changed its data to {lists}", before)


@law("rlm_rewards", applies=lambda s: isinstance(s.part.target, type))
def state(subject: Subject, draw: Draw) -> None:
    """Check that its state survives a checkpoint (state_dict, load_state_dict), or it has none."""
    first, second = sample_columns(subject, draw), sample_columns(subject, draw)
    old, new = subject.fresh(), subject.fresh()
    original, resumed = (trl_reward(Reward(subject.part.name, bound)) for bound in (old, new))
    _call(original, first)
    if isinstance(old.target, Stateful):
        load_checkpoint(new, old)
    _check_equal(second, _call(original, second), _call(resumed, second), "after a checkpoint")
