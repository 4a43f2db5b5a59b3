"""The laws of rewards, each called as the machine calls it (:func:`rlm_plugins.judge.trl_reward`)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.testing.law import Draw, law
from rlm_plugins.testing.part_under_test import LawBroken, Subject, remembering, saved
from rlm_plugins.testing.text_samples import Rows, rows, shown, some


def scores(subject: Subject, columns: Rows) -> list[float | None]:
    """What a new instance of the reward says about the rows.

    Raises:
        LawBroken: It raised, or returned something that is no list of numbers.
    """
    return _said_by(trl_reward(Reward(subject.part.name, subject.fresh())), columns)


def _said_by(reward: Any, columns: Rows) -> list[float | None]:
    try:
        found: Any = reward(**columns)
        result: list[float | None] = asyncio.run(found) if inspect.iscoroutine(found) else found
    except Exception as error:
        raise LawBroken(str(error), shown(columns)) from error
    return result


def _alike(columns: Rows, x: list[float | None], y: list[float | None], what: str) -> None:
    if len(x) != len(y) or not all(map(_same, x, y)):
        raise LawBroken(f"{x} became {y} {what}", shown(columns))


def _same(x: float | None, y: float | None) -> bool:
    """Up to the rounding of a model: rows that are read together, or padded further, are summed in another order."""
    if x is None or y is None:
        return x is y
    return math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-5)


@law("rlm_rewards")
def numbers(subject: Subject, draw: Draw) -> None:
    """One finite number, or None, per completion: for empty, huge and odd ones, too."""
    scores(subject, rows(subject, draw))


@law("rlm_rewards")
def order(subject: Subject, draw: Draw) -> None:
    """The order of the rows does not matter."""
    columns = rows(subject, draw)
    permutation = draw(st.permutations(range(len(columns["completions"]))))
    now = scores(subject, columns)
    _alike(columns, [now[i] for i in permutation], scores(subject, some(columns, permutation)), "in another order")


@law("rlm_rewards")
def isolation(subject: Subject, draw: Draw) -> None:
    """Other groups change nothing: which of them share a process is chance."""
    columns = rows(subject, draw)
    now = scores(subject, columns)
    prompts = [repr(prompt) for prompt in columns["prompts"]]
    for prompt in dict.fromkeys(prompts):
        members = [i for i, other in enumerate(prompts) if other == prompt]
        alone = scores(subject, some(columns, members))
        _alike(columns, [now[i] for i in members], alone, f"when {prompt} came alone")


@law("rlm_rewards")
def repeat(subject: Subject, draw: Draw) -> None:
    """The same rows get the same scores."""
    columns = rows(subject, draw)
    _alike(columns, scores(subject, columns), scores(subject, columns), "the second time")


@law("rlm_rewards")
def purity(subject: Subject, draw: Draw) -> None:
    """Its data are left as they were."""
    columns = rows(subject, draw)
    before = copy.deepcopy(shown(columns)), copy.deepcopy(columns["completion_ids"])
    scores(subject, columns)
    if before != (shown(columns), columns["completion_ids"]):
        raise LawBroken(f"it changed its data to {shown(columns)}", before[0])


@law("rlm_rewards", applies=lambda s: isinstance(s.part.target, type))
def memory(subject: Subject, draw: Draw) -> None:
    """Its memory survives a checkpoint: state_dict, load_state_dict, and it goes on as before; or it has none."""
    first, second = rows(subject, draw), rows(subject, draw)
    old, new = subject.fresh(), subject.fresh()
    going, resumed = (trl_reward(Reward(subject.part.name, bound)) for bound in (old, new))
    _said_by(going, first)
    if isinstance(old.target, Stateful):
        remembering(new).load_state_dict(saved(remembering(old).state_dict()))
    _alike(second, _said_by(going, second), _said_by(resumed, second), "after a checkpoint")
