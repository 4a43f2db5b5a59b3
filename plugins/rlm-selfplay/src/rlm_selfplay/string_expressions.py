"""One line per task: programs are expressions of a string."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from rlm_selfplay.code_language import CodeLanguage
from rlm_selfplay.tasks import Task

ATOMS = {
    "s": lambda s: s,
    "s[::-1]": lambda s: s[::-1],
    "s[1:]": lambda s: s[1:],
    "s[:1]": lambda s: s[:1],
}
"""Expression → its value, computed here: a demonstration requires no sandbox."""
LETTERS = "abcd"


def value(program: str, text: str) -> str:
    """Return the output of a sum of atoms.

    >>> value("s[1:]+s[:1]", "bcd")
    'cdb'
    """
    return "".join(ATOMS[atom](text) for atom in program.split("+"))


def random_task(kind: str, rng: random.Random) -> Task:
    """Return a random task with its outputs."""
    program = "+".join(rng.choices(list(ATOMS), k=2))
    inputs = list[str]()
    while len(inputs) < (4 if kind == "induction" else 1):
        text = "".join(rng.choices(LETTERS, k=rng.randint(2, 3)))
        inputs += [text] if text not in inputs else []
    return Task(kind, program, tuple(inputs), tuple(value(program, text) for text in inputs))


def proposal(task: Task) -> str:
    """Return the completion that proposes a task."""
    return ",".join(task.inputs) if task.kind == "induction" else f"{task.program};{task.inputs[0]}"


def solution(task: Task, slip: bool) -> str:
    """Return a solution; with `slip` of the program's first half alone.

    >>> solution(Task("deduction", "s[1:]+s[:1]", ("bcd",), ("cdb",)), slip=True)
    'cd'
    """
    first = task.program.partition("+")[0]
    if task.kind == "deduction":
        return value(first, task.inputs[0]) if slip else task.outputs[0]
    if task.kind == "abduction":
        return task.outputs[0] if slip else task.inputs[0]
    return first if slip else task.program


def is_held_out(task: Task) -> bool:
    """Return True for one task in eight, by the hash of its prompt."""
    prompt = Lines().task_prompt(task)
    return hashlib.sha256(prompt.encode()).digest()[0] % 8 == 0


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
