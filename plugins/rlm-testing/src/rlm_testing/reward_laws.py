"""Laws of rewards, called as in training (:func:`rlm_plugins.rewards.trl_adapter.trl_reward`)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import random
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.columns import call_part, call_part_async, part_data
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage_settings import Reward
from rlm_plugins.workers.time_limit import DEFAULT
from rlm_testing.law import Draw, law
from rlm_testing.part_under_test import LawBroken, Subject, stateful, through_checkpoint
from rlm_testing.text_samples import Columns, example_data, sample_columns, select


def scores(subject: Subject, columns: Columns) -> list[float | None]:
    """Return the scores of a new instance of the reward.

    Raises:
        LawBroken: It raised, or returned anything but a list of numbers.
    """
    return _call(trl_reward(Reward(subject.part.name, subject.fresh())), columns)


def _call(reward: Any, columns: Columns) -> list[float | None]:
    try:
        returned: Any = reward(**columns)
        result: list[float | None] = asyncio.run(returned) if inspect.iscoroutine(returned) else returned
    except Exception as error:
        raise LawBroken(str(error), example_data(columns)) from error
    return result


def _check_equal(columns: Columns, x: list[float | None], y: list[float | None], what: str) -> None:
    if len(x) != len(y) or not all(map(_is_close, x, y)):
        raise LawBroken(f"{x} became {y} {what}", example_data(columns))


def _is_close(x: float | None, y: float | None) -> bool:
    """Return True if two scores are equal up to the rounding of a model under another padding or batch size."""
    if x is None or y is None:
        return x is y
    return math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-5)


@law("rlm_rewards")
def numbers(subject: Subject, draw: Draw) -> None:
    """Check that it returns a finite number, or None, per completion; also for empty, huge and unusual ones."""
    scores(subject, sample_columns(subject, draw))


@law("rlm_rewards")
def order(subject: Subject, draw: Draw) -> None:
    """Check that the order of the completions does not matter."""
    columns = sample_columns(subject, draw)
    permutation = draw(st.permutations(range(len(columns["completions"]))))
    full = scores(subject, columns)
    _check_equal(
        columns, [full[i] for i in permutation], scores(subject, select(columns, permutation)), "in another order"
    )


@law("rlm_rewards")
def isolation(subject: Subject, draw: Draw) -> None:
    """Check that other groups change nothing; which of them share a process is arbitrary."""
    columns = sample_columns(subject, draw)
    full = scores(subject, columns)
    prompts = [repr(prompt) for prompt in columns["prompts"]]
    for prompt in dict.fromkeys(prompts):
        members = [i for i, other in enumerate(prompts) if other == prompt]
        alone = scores(subject, select(columns, members))
        _check_equal(columns, [full[i] for i in members], alone, f"for {prompt} alone")


@law("rlm_rewards")
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that equal completions get equal scores, whatever the state of the global random generators."""
    columns = sample_columns(subject, draw)
    first = scores(subject, columns)
    random.random(), np.random.random(), torch.rand(1)  # each call restores them, so that no reward changes a run
    _check_equal(columns, first, scores(subject, columns), "the second time")


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
        raise LawBroken(str(error), example_data(columns)) from error
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
        stateful(new).load_state_dict(through_checkpoint(stateful(old).state_dict()))
    _check_equal(second, _call(original, second), _call(resumed, second), "after a checkpoint")
