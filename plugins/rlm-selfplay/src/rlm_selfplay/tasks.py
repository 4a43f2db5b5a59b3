"""Tasks that are proposed and solved, and the buffer of proposed tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

KINDS = ("deduction", "abduction", "induction", "question")
JOBS = ("propose", "solve")


@dataclass(frozen=True)
class Task:
    """A task with its solution.

    Args:
        kind: ``deduction`` (find the output), ``abduction`` (the input), ``induction`` (the program) or ``question``.
        program: Text of the program, or of the question.
        inputs: Text of each input: one, or several for an induction.
        outputs: Text of each output; the only answer of a question.
    """

    kind: str
    program: str
    inputs: tuple[str, ...] = field(default=())
    outputs: tuple[str, ...] = field(default=())

    def question(self) -> str:
        """Return program and inputs as one text."""
        return " ".join([self.program, *self.inputs])

    def text(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))


def read(text: str) -> Task:
    """Return the task of `Task.text`.

    >>> read(Task("deduction", "s*2", ("ab",), ("abab",)).text()).outputs
    ('abab',)
    """
    values: dict[str, Any] = json.loads(text)
    return Task(values["kind"], values["program"], tuple(values["inputs"]), tuple(values["outputs"]))


def role_number(kind: str, job: str) -> int:
    """Return the number of a role: two of each kind.

    >>> role_number("deduction", "propose"), role_number("induction", "solve")
    (0, 5)
    """
    return 2 * KINDS.index(kind) + JOBS.index(job)


class TaskBuffer:
    """The latest tasks of each kind, each once.

    Args:
        capacity: Largest number of tasks of a kind; the oldest are dropped.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tasks: dict[str, dict[str, None]] = {}

    def add(self, tasks: Iterable[str]) -> None:
        """Add tasks as text."""
        for text in tasks:
            tasks_of_kind = self._tasks.setdefault(read(text).kind, {})
            tasks_of_kind.setdefault(text)
            if len(tasks_of_kind) > self._capacity:
                del tasks_of_kind[next(iter(tasks_of_kind))]

    def draw(self, kind: str, rng: random.Random) -> Task | None:
        """Return a random task of a kind, or None if there is none."""
        tasks_of_kind = list(self._tasks.get(kind, ()))
        return read(rng.choice(tasks_of_kind)) if tasks_of_kind else None

    def count(self, kind: str) -> int:
        """Return the number of tasks of a kind."""
        return len(self._tasks.get(kind, ()))

    def state_dict(self) -> dict[str, list[str]]:
        return {kind: list(tasks) for kind, tasks in self._tasks.items()}

    def load_state_dict(self, state: Mapping[str, list[str]]) -> None:
        self._tasks = {kind: dict.fromkeys(tasks) for kind, tasks in state.items()}


class Language:
    """Base of the languages of tasks.

    Attributes:
        kinds: Kinds of tasks that it has.
    """

    kinds: ClassVar[tuple[str, ...]]

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        """Return the prompt for a new task, with another task as reference."""
        raise NotImplementedError

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        """Return the proposed task without outputs; None: it is not in the format."""
        raise NotImplementedError

    def complete(self, task: Task) -> Task | None:
        """Return a proposed task with its outputs; None: it is invalid."""
        raise NotImplementedError

    def task_prompt(self, task: Task) -> str:
        """Return the prompt for the solution."""
        raise NotImplementedError

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the answer of a completion in a form that can be compared; None: it has none."""
        raise NotImplementedError

    def is_right(self, task: Task, answer: str) -> bool:
        """Return True if an answer solves the task."""
        raise NotImplementedError
