"""Languages of tasks by name, and questions in natural language."""

from __future__ import annotations

from rlm_plugins.data.answer_extraction import final_answers
from rlm_selfplay.language import Language
from rlm_selfplay.python_blocks import PythonBlocks
from rlm_selfplay.string_expressions import Lines
from rlm_selfplay.tasks import Task


class Questions(Language):
    """Questions in natural language, whose answer is the majority of the solver's (R-Zero, SeRL, SQLM)."""

    kinds = ("question",)

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        """Return the request with the reference."""
        return f"Write one new question like this one, harder and of another kind.\n\n{reference.program}"

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        """Return the text after the last tag, or all of it, as a question."""
        question = text.rpartition("</think>")[2].strip()
        return Task(kind, question) if question else None

    def complete(self, task: Task) -> Task | None:
        """Return the task: its answer follows from votes."""
        return task

    def task_prompt(self, task: Task) -> str:
        """Return the question."""
        return task.program

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the one final answer."""
        answers = final_answers(text, "answer", "last_line")
        return answers[0].strip() if len(answers) == 1 and answers[0].strip() else None

    def is_right(self, task: Task, answer: str) -> bool:
        """Return True for the answer of the task."""
        return task.outputs == (answer,)


LANGUAGES: dict[str, Language] = {"lines": Lines(), "python": PythonBlocks(), "questions": Questions()}
"""Knob → language."""
