"""One line per task: programs are expressions of a string."""

from __future__ import annotations

from typing import Any

from rlm_selfplay.code_language import CodeLanguage
from rlm_selfplay.tasks import Task


class Lines(CodeLanguage):
    """One line per task, for models with a small vocabulary: programs are expressions of a string ``s``.

    ``d s+s;ab`` is a request for a deduction like that one, ``D s[1:];abc`` is one; likewise ``a`` and ``A`` (``A
    s[1:];bc``), ``i`` and ``I`` (``I abc>bc,ba>a``). A proposal is ``s[1:];abc``, of an induction four inputs:
    ``abc,ba,c,abca``.

    >>> lines = Lines()
    >>> task = lines.read_proposal("deduction", "s[1:]+s[:1];abc", Task("deduction", "s"))
    >>> lines.task_prompt(lines.complete(task)), lines.complete(task).outputs
    ('D s[1:]+s[:1];abc', ('bca',))
    """

    def source(self, program: str) -> str:
        """Return a function of the expression; one that is no expression becomes a syntax error."""
        expression = program.replace("\n", ";")
        return f"def f(s): return ({expression})"

    def arguments(self, text: str) -> tuple[Any, ...]:
        return (text,)

    def output(self, value: Any) -> str:
        """Return a string; nothing for another type."""
        return value if isinstance(value, str) else ""

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        return f"{kind[0]} {reference.program}" + ("" if kind == "induction" else f";{reference.inputs[0]}")

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        """Return the task of ``program;input``, or of four inputs for the program of the reference."""
        if kind == "induction":
            inputs = text.split(",")
            return Task(kind, reference.program, tuple(inputs)) if len({*inputs}) == 4 == len(inputs) else None
        program, separator, value = text.partition(";")
        return Task(kind, program, (value,)) if separator and program and value else None

    def task_prompt(self, task: Task) -> str:
        if task.kind == "induction":
            return "I " + ",".join(f"{value}>{output}" for value, output in self.shown(task))
        return f"{task.kind[0].upper()} {task.program};{(task.inputs if task.kind == 'deduction' else task.outputs)[0]}"

    def read_answer(self, task: Task, text: str) -> str | None:
        return text or None
