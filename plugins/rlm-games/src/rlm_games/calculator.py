"""Arithmetic with a calculator or Python as a tool."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_games.game import Count, Share, Show
from rlm_games.interpreter import Interpreter, require_sandbox
from rlm_games.safe_arithmetic import evaluate
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import describe
from rlm_plugins.specs import EnvironmentSpec

Digits = Annotated[int, Field(ge=1, le=9)]
Tool = Literal["calculate", "python"]


class Calculator(Environment):
    """Environment with a calculator as its only tool."""

    turns = 4

    def calculate(self, expression: str) -> str:
        """Computes an arithmetic expression.

        Args:
            expression: Whole numbers, + - * // and parentheses, for example (3+4)*5.

        Returns:
            The value.
        """  # the tool's description in the prompt, hence no change of its text
        return str(evaluate(expression))


def calculator(
    *,
    digits: Digits = 2,
    question: str = "{sum}",
    tool: Tool = "calculate",
    train_rows: Count = 2048,
    test_rows: Count = 100,
    show: Show = "games",
    skill: Share = 0.25,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build products and sums of three numbers with the tool `calculate(expression)`; reward: for example `accuracy`.

    An example is a question (``{sum}`` in `question`: ``37*48+5``) and its `answer`. ``tool: python`` provides the
    Python interpreter instead, for programs that print the value. With ``show: moves`` an example is one turn of a
    demonstrator (column `demonstration`). With probability `skill` it calls the tool and repeats the result, else it
    guesses wrongly. Calls have the format of the `scratch` model with ``tools: true``. Questions are held out. At most
    half of all possible questions (2187 with one digit) are generated.
    """
    if "{sum}" not in question:
        problem = f"expected a question with {{sum}}, got {describe(question)}"
        raise RecipeError(problem, where="environment.question", allowed="text with {sum} in it")
    if tool == "python":
        require_sandbox()
    rng = random.Random(f"calculator {seed}")
    num_possible = (9 * 10 ** (digits - 1)) ** 3 * len("*+-") * len("+-")
    sums: dict[str, None] = {}
    while len(sums) < min(train_rows + test_rows, num_possible // 2):
        sums[_random_expression(rng, digits)] = None
    examples = [_example(text, question) for text in sums]
    train, test = examples[test_rows:], examples[:test_rows]
    if show == "moves":
        train = [turn for example in train for turn in _demonstration(example, tool, rng, skill)]
    return EnvironmentSpec(train=train, test=test, environment=Interpreter if tool == "python" else Calculator)


def _random_expression(rng: random.Random, digits: int) -> str:
    """Return a random expression of three numbers."""
    a, b, c = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(3))
    return f"{a}{rng.choice('*+-')}{b}{rng.choice('+-')}{c}"


def _example(expression: str, question: str) -> dict[str, Any]:
    """Return the example of an expression."""
    prompt = [{"role": "user", "content": question.replace("{sum}", expression)}]
    return {"prompt": prompt, "sum": expression, "answer": str(evaluate(expression))}


def _demonstration(example: dict[str, Any], tool: Tool, rng: random.Random, skill: float) -> list[dict[str, Any]]:
    """Return the demonstrator's turns on one example: a wrong guess, or a tool call and its answer."""
    if rng.random() >= skill:
        guess = str(int(example["answer"]) + rng.choice([-2, -1, 1, 2]))
        return [{**example, "demonstration": guess}]
    name, value, end = (
        ("code", f"print({example['sum']})", "\n") if tool == "python" else ("expression", example["sum"], "")
    )
    call = {"type": "function", "function": {"name": tool, "arguments": {name: value}}}
    call_message = {"role": "assistant", "content": "", "tool_calls": [call]}
    result_message = {"role": "tool", "name": tool, "content": example["answer"] + end}
    call_text = f"<call>{tool} {name}={value}</call>"
    return [
        {**example, "demonstration": call_text},
        {**example, "prompt": [*example["prompt"], call_message, result_message], "demonstration": example["answer"]},
    ]
