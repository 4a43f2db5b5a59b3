"""No constant and no parroting answer solves a proposed task, unless it is right in plain Python too."""

from __future__ import annotations

import random

import pytest
from rlm_selfplay.languages import LANGUAGES, PythonBlocks
from rlm_selfplay.string_expressions import random_task
from rlm_selfplay.tasks import Task

CONSTANTS = ["", "abc", "s+s", "0", "True", "s[:0]", "[]", "s;ab"]
PROGRAM = "def f(a, b):\n    return sorted(a, reverse=b)"
PYTHON = [
    Task("deduction", PROGRAM, ("[3, 1, 2], True",), ("[3, 2, 1]",)),
    Task("abduction", PROGRAM, ("[3, 1, 2], True",), ("[3, 2, 1]",)),
    Task(
        "induction",
        PROGRAM,
        tuple(f"[{n}, 1, 9], True" for n in range(2, 6)),
        tuple(f"[9, {n}, 1]" for n in range(2, 6)),
    ),
]
WRONG = ["[1, 2, 3]", "nan", "open('/etc/passwd')", "f"]
PROGRAMS = [
    "def f(*a): return a",
    "def f(*a): raise StopIteration",
    "class L(list):\n    def __eq__(s, o): return True\n    def __repr__(s): return '[9, 2, 1]'\ndef f(*a): return L()",
    "n = 1\ndef f(*a):\n    global n\n    n += 1\n    return [9, n, 1] if n < 4 else []",
    "import os\nos._exit(0)",
    PROGRAM.replace("reverse=b", "reverse=not b"),
]  # fmt: skip


def by_hand(task: Task, answer: str) -> bool:
    """Return True if an answer to a task of `lines` is right, in plain Python."""

    def value(program: str, text: str) -> object:
        try:
            return eval(program, {"__builtins__": {}}, {"s": text})
        except Exception:
            return None

    if task.kind == "deduction":
        return answer == task.outputs[0]
    if task.kind == "abduction":
        return value(task.program, answer) == task.outputs[0]
    return [value(answer, text) for text in task.inputs] == [*task.outputs]


@pytest.mark.parametrize("kind", ["deduction", "abduction", "induction"])
def test_lines_are_paid_as_in_plain_python(kind: str) -> None:
    lines, rng, paid, seen = LANGUAGES["lines"], random.Random(7), 0, 0
    for _ in range(3):
        task = random_task(kind, rng)
        prompt = lines.task_prompt(task)
        for answer in dict.fromkeys(
            [*CONSTANTS, prompt, prompt[2:], *prompt.replace(";", " ").replace(",", " ").split()]
        ):
            read = lines.read_answer(task, answer)
            is_paid = read is not None and lines.is_right(task, read)
            assert is_paid == (answer != "" and by_hand(task, answer)), (task, answer)
            paid, seen = paid + is_paid, seen + 1
    assert paid < 0.1 * seen


def test_python_blocks_pay_no_wrong_answer() -> None:
    language = PythonBlocks()
    deduction, abduction, induction = PYTHON
    for task in PYTHON:
        assert language.complete(task) == task
    assert not any(language.is_right(deduction, answer) for answer in WRONG)
    assert [answer for answer in WRONG if language.is_right(abduction, answer)] == []
    assert language.is_right(abduction, "[1, 2, 3], True")
    assert [program for program in PROGRAMS if language.is_right(induction, program)] == []
    assert language.is_right(induction, PROGRAM)
