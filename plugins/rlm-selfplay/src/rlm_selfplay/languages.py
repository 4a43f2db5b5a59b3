"""Tasks that are proposed and solved, their buffer, and their languages: code, string programs, questions."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from rlm_sandbox import Call, Limits, Program, shared

from rlm_plugins.data.answer_extraction import final_answers

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


LIMITS = Limits(seconds=1.0, memory=256 << 20, output=4096)
SHOWN = 2
"""Inputs of an induction are half shown, half hidden; this many at least."""


class CodeLanguage(Language):
    """Tasks of code, checked by execution in the sandbox (Absolute Zero, arXiv 2505.03335 §3.2).

    The answer of a deduction is the output. That of an abduction is any input with that output, and that of an
    induction a program with the same outputs on hidden inputs. A proposal is valid if its program returns a value for
    each input, and the same when it is called again.
    """

    kinds = ("deduction", "abduction", "induction")

    def source(self, program: str) -> str:
        """Return the source with a function `f`."""
        return program

    def arguments(self, text: str) -> tuple[Any, ...]:
        """Return the arguments that a text stands for.

        Raises:
            ValueError: It is no literal.
        """
        return tuple(ast.literal_eval(f"({text},)"))

    def output(self, value: Any) -> str:
        return repr(value)

    def outputs(self, program: str, inputs: Sequence[str]) -> tuple[str, ...] | None:
        """Return the program's output for each input; None: an input is no literal, or the program fails."""
        try:
            calls = [Call("f", self.arguments(text)) for text in inputs]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
        results = list(shared().run(Program(self.source(program)), calls, LIMITS))
        if any(result.status != "ok" for result in results):
            return None
        return tuple(self.output(result.value) for result in results)

    def complete(self, task: Task) -> Task | None:
        """Return a proposed task with its outputs; None: it fails, has no output, or differs the second time."""
        outputs, number = self.outputs(task.program, [*task.inputs, *task.inputs]), len(task.inputs)
        if not outputs or not all(outputs) or outputs[:number] != outputs[number:]:
            return None
        return replace(task, outputs=outputs[:number])

    def shown(self, task: Task) -> list[tuple[str, str]]:
        """Return the pairs of inputs and outputs in the prompt of an induction: the first half."""
        pairs = list(zip(task.inputs, task.outputs, strict=True))
        return pairs[: max(1, len(pairs) // SHOWN)]

    def is_right(self, task: Task, answer: str) -> bool:
        """Return True if the output is equal, the input gives the output, or the program all outputs."""
        if task.kind == "deduction":
            return answer == task.outputs[0]
        if task.kind == "abduction":
            return self.outputs(task.program, [answer]) == task.outputs
        return self.outputs(answer, task.inputs) == task.outputs


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


class PythonBlocks(CodeLanguage):
    """Python functions ``f`` and inputs in blocks, for pre-trained models; the wording of the prompts is ours."""

    _ASKS: ClassVar[Mapping[str, str]] = {
        "deduction": "Then its output must be hard to predict from program and input.",
        "abduction": "Then an input must be hard to find from program and output.",
    }

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        program = f"```python\n{reference.program}\n```"
        if kind == "induction":
            return (
                f"{program}\nWrite ten different inputs of `f`, from which its code can be inferred but not easily. "
                "Write each in a block of its own that begins with ```input."
            )
        return (
            f"Example:\n{program}\n```input\n{reference.inputs[0]}\n```\nWrite a new deterministic Python function `f` "
            f"that needs several steps of reasoning, and an input. {self._ASKS[kind]} Import nothing random, no files, "
            "no network. Write both in blocks as in the example."
        )

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        programs, inputs = _blocks(text, "python"), _blocks(text, "input")
        if kind == "induction":
            return Task(kind, reference.program, tuple(dict.fromkeys(inputs))) if len({*inputs}) >= 4 else None
        return Task(kind, programs[-1], (inputs[-1],)) if programs and inputs else None

    def task_prompt(self, task: Task) -> str:
        program, last = f"```python\n{task.program}\n```\n", "Think step by step, then write "
        if task.kind == "deduction":
            return f"{program}```input\n{task.inputs[0]}\n```\n{last}the output in a block that begins with ```output."
        if task.kind == "abduction":
            wanted_block = "an input of `f` with this output in a block that begins with ```input."
            return f"{program}```output\n{task.outputs[0]}\n```\n{last}{wanted_block}"
        pairs = "\n".join(f"f({value}) = {output}" for value, output in self.shown(task))
        return f"{pairs}\n{last}the Python function `f` in a block that begins with ```python."

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the content of the last block; of a deduction as Python writes it."""
        name = {"deduction": "output", "abduction": "input", "induction": "python"}[task.kind]
        blocks = _blocks(text, name)
        if not blocks or task.kind != "deduction":
            return blocks[-1] if blocks else None
        try:
            return repr(ast.literal_eval(blocks[-1]))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return blocks[-1]


def _blocks(text: str, name: str) -> list[str]:
    return [block.strip() for block in re.findall(rf"```{name}\s*\n(.*?)```", text, re.DOTALL)]


class Questions(Language):
    """Questions in natural language, whose answer is the majority of the solver's (R-Zero, SeRL, SQLM)."""

    kinds = ("question",)

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        return f"Write one new question like this one, harder and of another kind.\n\n{reference.program}"

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        """Return the text after the last tag, or all of it, as a question."""
        question = text.rpartition("</think>")[2].strip()
        return Task(kind, question) if question else None

    def complete(self, task: Task) -> Task | None:
        """Return the task: its answer follows from votes."""
        return task

    def task_prompt(self, task: Task) -> str:
        return task.program

    def read_answer(self, task: Task, text: str) -> str | None:
        answers = final_answers(text, "answer", "last_line")
        return answers[0].strip() if len(answers) == 1 and answers[0].strip() else None

    def is_right(self, task: Task, answer: str) -> bool:
        return task.outputs == (answer,)


LANGUAGES: dict[str, Language] = {"lines": Lines(), "python": PythonBlocks(), "questions": Questions()}
"""Knob → language."""
