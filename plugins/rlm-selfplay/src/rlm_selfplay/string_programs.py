"""Random tasks of the language `lines`, for the supervised start of small models."""

from __future__ import annotations

import hashlib
import random

from rlm_selfplay.string_expressions import Lines
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
