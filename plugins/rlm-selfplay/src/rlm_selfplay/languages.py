"""Languages of tasks by name, and questions in natural language."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import ClassVar

from rlm_plugins.data.answer_extraction import final_answers
from rlm_selfplay.code_language import CodeLanguage
from rlm_selfplay.string_expressions import Lines
from rlm_selfplay.tasks import Language, Task


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
        """Return the task of the last blocks."""
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
    """Return the contents of the fenced blocks with this name."""
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
