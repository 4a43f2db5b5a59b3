"""A reward in processes of its own (`processes` beside it): on several cores, and killed when its time is up."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pydantic_core

from rlm_plugins.batch import SAMPLE
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.prefetch import Asker, Begun
from rlm_plugins.rewards.score_validation import allowed
from rlm_plugins.stage import Reward
from rlm_plugins.workers.pool import Pool, Reply, shared
from rlm_plugins.workers.worker import Program

HERE_ONLY = ("trainer_state", "episodes", "environments", "log_extra", "log_metric")
"""What cannot be sent to another process."""
FOREVER = 86_400.0

Question = dict[str, list[Any]]
"""The columns of one group."""


class Elsewhere:
    """Asks the processes of a reward, one group at a time.

    Args:
        reward: With its `processes`, and the `timeout` of one group.
    """

    def __init__(self, reward: Reward) -> None:
        self._seconds = reward.timeout or FOREVER
        self._program, self._size = program(reward.part, reward.label), reward.processes or 1
        self._begun, self._asker = Begun(), Asker(self._replies_to)

    def begin(self, given: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> None:
        """Asks now what :meth:`ask` will be asked: for groups that are written while others still are."""
        for question in _questions(given, groups):
            self._begun.add(question, partial(self._asker.begin, (question,)))

    def ask(self, given: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> list[Any]:
        """A score per row; in place of the scores of a group that failed, its fault.

        Args:
            given: What the part named, as columns.
            groups: Rows that are asked about together.
        """
        questions = _questions(given, groups)
        begun = [self._begun.take(question) for question in questions]
        self._begun.forget()
        late = [(q,) for q, future in zip(questions, begun, strict=True) if future is None]
        rest = iter(self._pool.ask(late, self._seconds))
        said: list[Any] = []
        for future, rows in zip(begun, groups, strict=True):
            said += self._read(next(rest) if future is None else future.result(), len(rows))
        return said

    def _replies_to(self, asker: Asker) -> list[Reply]:
        return self._pool.ask(asker.take(), self._seconds, asker)

    @property
    def _pool(self) -> Pool:
        return shared(self._program, self._size)

    def _read(self, reply: str, rows: int) -> list[Any]:
        if reply == "late":
            problem = f"gave no answer within {self._seconds:g} s, and was killed"
            return [Fault(problem, hint="a longer `timeout` beside it", narrow=False)] * rows
        if reply == "died":
            return [Fault("ended its process: out of memory, a crash, or an exit")] * rows
        answer = json.loads(reply)
        if "raised" in answer:
            return [Fault(f"raised {answer['raised']}\n{answer['trace']}".rstrip())] * rows
        if answer["kind"] != "list" or len(answer["scores"]) != rows:
            problem = f"returned {answer['brief']} for {rows} completions"
            return [Fault(problem, allowed=allowed(rows), whole=True)] * rows
        return [Fault(score["fault"]) if isinstance(score, dict) else score for score in answer["scores"]]


def _questions(given: Mapping[str, Any], groups: Sequence[Sequence[int]]) -> list[Question]:
    return [{name: [x[row] for row in rows] for name, x in given.items()} for rows in groups]


def program(part: Bound, label: str) -> Program:
    """What the processes of a reward run: they find the part as this process did."""
    module = sys.modules.get(part.part.target.__module__)
    file = getattr(module, "__file__", None) if part.part.target.__module__.startswith("rlm_file_") else None
    job = {
        "load": [file] if file else [],
        "name": part.part.full_name,
        "knobs": pydantic_core.to_jsonable_python(part.knobs, fallback=repr),
    }
    script = Path(__file__).with_name("reward_worker.py")
    return Program(
        script, (json.dumps(job, sort_keys=True),), name=f"process for the reward '{label}'", environment=None
    )


def check_processes(part: Bound, where: str) -> None:
    """Whether a reward can live in other processes.

    Raises:
        RecipeError: It has a memory, is asynchronous, or needs the policy or something else that cannot be sent.
    """
    reason = ""
    if isinstance(part.target, Stateful):
        reason = "it has a memory, which would be torn apart"
    elif part.setup_targets:
        reason = "it works with the policy, which stays here"
    elif part.waits:
        reason = "it is asynchronous: it waits, and does not compute"
    elif missing := [name for name in part.part.needs if name in HERE_ONLY]:
        reason = f"it needs {missing[0]} ({SAMPLE[missing[0]].partition(':')[0]}), which cannot be sent there"
    if reason:
        raise RecipeError(f"'{part.part.name}' cannot have processes of its own: {reason}", where=f"{where}.processes")
