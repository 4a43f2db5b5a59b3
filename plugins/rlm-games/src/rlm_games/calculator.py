"""Arithmetic that is too hard for the model's head, and a calculator beside it, or Python."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_games.game import Count, Share, Show
from rlm_games.interpreter import Interpreter, require_sandbox
from rlm_games.sums import computed
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import describe
from rlm_plugins.specs import EnvironmentSpec

Digits = Annotated[int, Field(ge=1, le=9)]
Tool = Literal["calculate", "python"]


class Calculator(Environment):
    """A tool that computes."""

    turns = 4

    def calculate(self, expression: str) -> str:
        """Computes an arithmetic expression.

        Args:
            expression: Whole numbers, + - * // and parentheses, for example (3+4)*5.

        Returns:
            The value.
        """
        return str(computed(expression))


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
    """Products and sums of three numbers, and a calculator: `calculate(expression)`. Reward: `accuracy`, say.

    A row is a question (``{sum}`` in `question`: ``37*48+5``) and its `answer`. ``tool: python`` lays the interpreter
    beside it instead, for programs that print the value. With ``show: moves`` a row is one turn of somebody who mostly
    guesses and, with probability `skill`, calls the tool and repeats what it says (`demonstration`; a call as the
    `scratch` model with ``tools: true`` writes it). Sums are held out; at most half of all there are (2187 of one
    digit) are made.
    """
    if "{sum}" not in question:
        problem = f"found {describe(question)}, which asks the same of every row"
        raise RecipeError(problem, where="environment.question", allowed="text with {sum} in it")
    if tool == "python":
        require_sandbox()
    chance = random.Random(f"calculator {seed}")
    most = (9 * 10 ** (digits - 1)) ** 3 * len("*+-") * len("+-")
    sums: dict[str, None] = {}
    while len(sums) < min(train_rows + test_rows, most // 2):
        sums[_sum(chance, digits)] = None
    rows = [_row(text, question) for text in sums]
    train, test = rows[test_rows:], rows[:test_rows]
    if show == "moves":
        train = [turn for row in train for turn in _shown(row, tool, chance, skill)]
    return EnvironmentSpec(train=train, test=test, environment=Interpreter if tool == "python" else Calculator)


def _sum(chance: random.Random, digits: int) -> str:
    a, b, c = (chance.randrange(10 ** (digits - 1), 10**digits) for _ in range(3))
    return f"{a}{chance.choice('*+-')}{b}{chance.choice('+-')}{c}"


def _row(text: str, question: str) -> dict[str, Any]:
    prompt = [{"role": "user", "content": question.replace("{sum}", text)}]
    return {"prompt": prompt, "sum": text, "answer": str(computed(text))}


def _shown(row: dict[str, Any], tool: Tool, chance: random.Random, skill: float) -> list[dict[str, Any]]:
    if chance.random() >= skill:
        guess = str(int(row["answer"]) + chance.choice([-2, -1, 1, 2]))
        return [{**row, "demonstration": guess}]
    name, value, end = ("code", f"print({row['sum']})", "\n") if tool == "python" else ("expression", row["sum"], "")
    call = {"type": "function", "function": {"name": tool, "arguments": {name: value}}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    told = {"role": "tool", "name": tool, "content": row["answer"] + end}
    written = f"<call>{tool} {name}={value}</call>"
    return [
        {**row, "demonstration": written},
        {**row, "prompt": [*row["prompt"], said, told], "demonstration": row["answer"]},
    ]
