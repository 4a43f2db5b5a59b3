"""Base of the languages of tasks: prompts, reading of completions, checks."""

from __future__ import annotations

from typing import ClassVar

from rlm_selfplay.tasks import Task


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
