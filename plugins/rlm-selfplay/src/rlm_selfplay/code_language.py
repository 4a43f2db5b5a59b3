"""Tasks of code that are checked by execution in the sandbox."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlm_sandbox import Call, Limits, Program, shared

from rlm_selfplay.tasks import Language, Task

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
        """Return an output as text."""
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
