"""Tasks that are proposed and solved, and the buffer that keeps them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = ("deduction", "abduction", "induction", "question")
JOBS = ("propose", "solve")


@dataclass(frozen=True)
class Task:
    """A task with its solution.

    Args:
        kind: ``deduction``: which output; ``abduction``: which input; ``induction``: which program; ``question``.
        program: The program's text; of a question, the question.
        inputs: Text of each input: one, of an induction several.
        outputs: Text of each output; of a question its one answer.
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
            kept = self._tasks.setdefault(read(text).kind, {})
            kept.setdefault(text)
            if len(kept) > self._capacity:
                del kept[next(iter(kept))]

    def draw(self, kind: str, rng: random.Random) -> Task | None:
        """Return one task of a kind; None: there is none."""
        kept = list(self._tasks.get(kind, ()))
        return read(rng.choice(kept)) if kept else None

    def count(self, kind: str) -> int:
        """Return the number of tasks of a kind."""
        return len(self._tasks.get(kind, ()))

    def state_dict(self) -> dict[str, list[str]]:
        """Return the tasks of each kind, the oldest first."""
        return {kind: list(kept) for kind, kept in self._tasks.items()}

    def load_state_dict(self, state: Mapping[str, list[str]]) -> None:
        """Restore the tasks of a checkpoint."""
        self._tasks = {kind: dict.fromkeys(kept) for kind, kept in state.items()}
