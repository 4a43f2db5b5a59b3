"""Proposed tasks: languages, validity in the sandbox, scores of both roles, the buffer; no constant solves one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rlm_selfplay import ProposeAndSolve, proposed_tasks
from rlm_selfplay.languages import (
    LANGUAGES,
    Lines,
    PythonBlocks,
    Task,
    proposal,
    random_task,
    read,
    role_number,
    solution,
)
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError

SMALL = {"language": "lines", "train_rows": 24, "test_rows": 8}
test_environment = conformance("rlm_environments", proposed_tasks, knobs=SMALL)
PYTHON = "def f(a, b):\n    return sorted(a, reverse=b)"


@pytest.mark.parametrize("kind", ["deduction", "abduction", "induction"])
def test_random_tasks_and_solutions_agree_with_execution(kind: str) -> None:
    """The expected outputs, computed without the sandbox, equal those of the program in the sandbox."""
    lines, rng, slipped = Lines(), random.Random(0), 0
    for _ in range(25):
        task = random_task(kind, rng)
        read_task = lines.read_proposal(kind, proposal(task), Task(kind, task.program))
        assert read_task is not None
        assert lines.complete(read_task) == task
        assert lines.is_right(task, solution(task, slip=False))
        slipped += not lines.is_right(task, solution(task, slip=True))
    assert slipped > 9, "the mistake of the demonstrations is one"


@pytest.mark.parametrize("text", ["", ";ab", "len(s);ab", "open('x');ab", "s*10**9;ab", "__import__('os');a"])
def test_invalid_proposals_are_none(text: str) -> None:
    lines = Lines()
    task = lines.read_proposal("deduction", text, Task("deduction", "s"))
    assert task is None or lines.complete(task) is None


def test_program_that_is_not_deterministic_is_invalid() -> None:
    language = PythonBlocks()
    program = "import random\ndef f(x):\n    return random.random()"
    assert language.complete(Task("deduction", program, ("1",))) is None
    assert language.complete(Task("deduction", PYTHON, ("[2, 1], False",))) is not None


def test_python_blocks_are_read_and_checked() -> None:
    language, identity = PythonBlocks(), Task("deduction", "def f(x):\n    return x", ("1",), ("1",))
    text = f"I propose:\n```python\n{PYTHON}\n```\n```input\n[3, 1], True\n```"
    task = language.complete(language.read_proposal("deduction", text, identity) or identity)
    assert task is not None
    assert task.outputs == ("[3, 1]",)
    assert PYTHON in language.task_prompt(task)
    assert language.read_answer(task, "so\n```output\n[3,1]\n```") == "[3, 1]"
    assert language.is_right(task, "[3, 1]")
    abduction = Task("abduction", PYTHON, ("[3, 1], True",), ("[3, 1]",))
    assert "[3, 1], True" not in language.task_prompt(abduction), "the input is what is asked for"
    assert language.is_right(abduction, "[1, 3], True"), "any input with this output is right"
    assert not language.is_right(abduction, "[1, 3], False")
    assert not language.is_right(abduction, "[1, 3], open('x')")


def test_induction_is_checked_on_hidden_inputs() -> None:
    task = Task("induction", "s[::-1]", ("aa", "bb", "ab", "abc"), ("aa", "bb", "ba", "cba"))
    lines = Lines()
    assert lines.task_prompt(task) == "I aa>aa,bb>bb"
    assert lines.is_right(task, "s[::-1]")
    assert not lines.is_right(task, "s"), "right on what is shown, wrong on what is hidden"


class Tokenizer:
    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(map(chr, row)) for row in rows]


def run(
    source: ProposeAndSolve, rows: list[dict[str, Any]], answer: Callable[[str], str], group: int
) -> dict[str, Any]:
    """Call the source with a policy that answers each prompt by a function."""
    logged: dict[str, float] = {}
    trainer = SimpleNamespace(
        prompt_ids=lambda prompts: [[ord(c) for c in p[0]["content"]] for p in prompts],
        components=SimpleNamespace(context=SimpleNamespace(log=logged.__setitem__)),
    )
    inputs = [row for row in rows for _ in range(group)]
    out = source(
        [row["prompt"] for row in inputs],
        inputs,
        [number % group for number in range(len(inputs))],
        lambda prompts: [[ord(c) for c in answer(p[0]["content"])] for p in prompts],
        Tokenizer(),
        step=0,
        seed=0,
        trainer=trainer,
    )
    return {**out, "logged": logged}


def rows_of(job: str, kind: str) -> list[dict[str, Any]]:
    spec = proposed_tasks(language="lines", kinds=[kind], train_rows=2, test_rows=0)  # type: ignore[list-item]
    return [dict(row) for row in spec.train if row["job"] == job]


def test_proposals_are_scored_by_the_solver_and_enter_the_buffer() -> None:
    """One of four attempts is correct: p̂ = ¼, r = ¾; an invalid program has −½, another format −1."""
    source = ProposeAndSolve(language="lines", attempts=4)
    proposals, attempts = iter(["s+s;ab", "open(s);a", "hello"]), iter(["abab", "ab", "b", ""])
    out = run(source, rows_of("propose", "deduction"), lambda p: next(proposals if p[0] == "d" else attempts), 3)
    assert out["score"] == [0.75, -0.5, -1.0]
    assert out["role"] == [role_number("deduction", "propose")] * 3
    assert all(all(row) for row in out["mask"])
    assert source.buffer.count("deduction") == 0, "not before the batch is scored"
    source.update(lambda name, x: None)
    assert source.buffer.state_dict() == {"deduction": [Task("deduction", "s+s", ("ab",), ("abab",)).text()]}
    assert out["logged"]["self_play/kept"] == pytest.approx(1 / 3)


def test_solver_gets_tasks_of_the_buffer_and_resume_repeats_the_draw() -> None:
    source = ProposeAndSolve(language="lines")
    source.buffer.add([Task("deduction", "s+s", ("ab",), ("abab",)).text()])
    texts = iter(["abab", "ab", ""])
    out = run(source, rows_of("solve", "deduction"), lambda _: next(texts), 3)
    assert "".join(map(chr, out["prompt_ids"][0])) == "D s+s;ab"
    assert out["score"] == [1.0, -0.5, -1.0]
    resumed = ProposeAndSolve(language="lines")
    resumed.load_state_dict(source.state_dict())
    assert resumed.buffer.state_dict() == source.buffer.state_dict()


def test_majority_is_the_label_and_keep_selects() -> None:
    """Three of four answer 7: p̂ = ¾, so 1 − 2 · ¼ = ½, minus the repetition penalty of two equal questions."""
    knobs: dict[str, Any] = {"language": "questions", "labels": "majority", "reward": "uncertainty", "attempts": 4}
    rows = [dict(proposed_tasks(language="questions", questions=["1+1?"], train_rows=1).train[0])]
    source = ProposeAndSolve(**knobs, keep=(0.25, 0.75), repetition=0.2, train_proposer=False)
    attempts = iter(["7", "7", "8", "7"] * 2)
    out = run(source, rows, lambda p: "3+4?" if p.startswith("Write") else next(attempts), 2)
    assert out["score"] == pytest.approx([0.3, 0.3])
    assert not any(map(any, out["mask"])), "proposals are not trained on"
    source.update(lambda name, x: None)
    assert [read(text).outputs for text in source.buffer.state_dict()["question"]] == [("7",)]
    source = ProposeAndSolve(**knobs, keep=(0.25, 0.75))
    run(source, rows, lambda p: "3+4?" if p.startswith("Write") else "7", 2)
    source.update(lambda name, x: None)
    assert source.buffer.count("question") == 0, "all agree: outside `keep`"


def test_different_tasks_are_not_repetitions() -> None:
    """Text that all tasks have in common, such as their kind, makes none similar."""
    source = ProposeAndSolve(language="lines", attempts=2, repetition=1.0)
    proposals, attempts = iter(["s+s;ab", "s[::-1]+s[1:];dcb"]), iter(["abab", "", "", "bcdcb"])
    out = run(source, rows_of("propose", "deduction"), lambda p: next(proposals if p[0] == "d" else attempts), 2)
    assert out["score"] == [0.0, 0.0], "½ − 1 · ½ each: every task is a cluster of its own"


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"language": "lines", "kinds": ["question"]}, "environment.kinds"),
        ({"language": "questions"}, "environment.questions"),
        ({"show": "solutions"}, "environment.show"),
    ],
)
def test_wrong_knobs_are_named(knobs: dict[str, Any], where: str) -> None:
    with pytest.raises(RecipeError) as failure:
        proposed_tasks(**knobs)
    assert failure.value.where == where


CONSTANTS = ["", "abc", "s+s", "0", "True", "s[:0]", "[]", "s;ab"]
PROGRAM = "def f(a, b):\n    return sorted(a, reverse=b)"
PYTHON_TASKS = [
    Task("deduction", PROGRAM, ("[3, 1, 2], True",), ("[3, 2, 1]",)),
    Task("abduction", PROGRAM, ("[3, 1, 2], True",), ("[3, 2, 1]",)),
    Task("induction", PROGRAM, tuple(f"[{n}, 1, 9], True" for n in range(2, 6)),
        tuple(f"[9, {n}, 1]" for n in range(2, 6))),
]  # fmt: skip
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
    deduction, abduction, induction = PYTHON_TASKS
    for task in PYTHON_TASKS:
        assert language.complete(task) == task
    assert not any(language.is_right(deduction, answer) for answer in WRONG)
    assert [answer for answer in WRONG if language.is_right(abduction, answer)] == []
    assert language.is_right(abduction, "[1, 2, 3], True")
    assert [program for program in PROGRAMS if language.is_right(induction, program)] == []
    assert language.is_right(induction, PROGRAM)
