"""x: environments with a tool: a calculator, or Python in a sandbox."""

from __future__ import annotations

import ast
import operator
import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins.builtin.dataset_environment import dataset
from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError, describe
from rlm_plugins.specs import Environment, EnvironmentSpec
from rlm_worlds.game import Show

MAX_LENGTH = 200
MAX_MAGNITUDE = 10**50
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(expression: str) -> int:
    """Return the value of an expression.

    Raises:
        ValueError: It is not an expression, it is too long, or a number in it becomes too large.

    >>> evaluate("(3+4)*-5")
    -35
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"expected at most {MAX_LENGTH} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} cannot be computed: {error}") from error


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("only whole numbers, + - * // and parentheses can be computed")
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError("a number became too large")
    return value


class Interpreter(Environment):
    """Environment with a Python interpreter as its only tool; no state is kept between two calls."""

    turns = 8

    def reset(self) -> None:
        """Start the sandbox. A tool's exceptions go to the model, so a missing sandbox must fail here.

        Raises:
            SandboxError: The machine cannot isolate programs.
        """
        from rlm_sandbox import shared

        shared().start()

    def python(self, code: str) -> str:
        """Runs a Python program and returns what it prints.

        Args:
            code: The program. It can compute, and neither read files nor reach the network.

        Returns:
            Its standard output, or the error that ended it.
        """  # the tool's description in the prompt, hence no change of its text
        from rlm_sandbox import Program, Stdin, shared

        (output,) = shared().run(Program(code), [Stdin()])
        if output.status == "ok":
            return str(output.value)[:MAX_OUTPUT_LENGTH]
        return f"{output.status}: {output.error}"[:MAX_OUTPUT_LENGTH].rstrip(": ")


MAX_OUTPUT_LENGTH = 2000
"""Largest number of characters of output in an observation."""


def interpreter(*, data: dict[str, Any]) -> EnvironmentSpec:
    """Build an environment from a data set, with Python as the tool `python(code)`.

    `data` holds the knobs of the environment `dataset` (`path`, `columns`, `test_rows`, …), which provides the
    examples. Any reward that names their columns can score the answers. Programs run in rlm-sandbox; without it the run
    stops.
    """
    require_sandbox()
    if "path" not in data:
        raise RecipeError("`data` requires `path`", where="environment.data", allowed="the knobs of `dataset`")
    spec = dataset(**data)
    return EnvironmentSpec(train=spec.train, test=spec.test, environment=Interpreter)


def require_sandbox() -> None:
    """Check that rlm-sandbox is installed, the only place where programs run."""
    if find_spec("rlm_sandbox") is None:
        problem, hint = "running programs requires rlm-sandbox", "pip install 'rlm-worlds[interpreter]'"
        raise RecipeError(problem, where="environment", hint=hint)


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
