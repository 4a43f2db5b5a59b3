"""Several sums in one completion, one per line: a toy environment with independent steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from rlm_plugins.data.addition import Difficulty, Problem
from rlm_plugins.specs import EnvironmentSpec


def sums(
    *,
    count: PositiveInt = 4,
    digits: Annotated[int, Field(ge=1, le=9)] = 2,
    slip: Annotated[float, Field(ge=0, le=1)] = 0.0,
    carries: bool = False,
    train_rows: PositiveInt = 8192,
    test_rows: NonNegativeInt = 256,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build prompts of `count` sums, solved line by line: ``47+85;12+39`` → ``12,13`` and ``11,05``.

    A line lists the column sums, from the right, carry included: 47+85 is 7+5 = 12 and 4+8+1 = 13. The lines are
    independent: each is correct or wrong by itself, and a completion is correct only if all are.
    With `carries` each column but the first starts with the carry, ``12,1=13``, so that a missing carry is visible in
    the line.

    Columns: ``prompt``, ``demonstration`` and ``lines``, the correct ones. With probability `slip` a training
    demonstration omits a carry. One sum in eight, chosen by its hash as in `addition`, is
    never trained on; test prompts consist of these alone.

    >>> [example] = sums(count=2, test_rows=0, train_rows=1).train
    >>> example["prompt"][0]["content"], example["demonstration"]
    ('73+16;20+94', '09,08\\n04,11')
    """
    kind, rng = Difficulty(range(digits, digits + 1), 0, digits), random.Random(f"slips {seed}")
    train = islice(_batches(kind.training(seed), count), train_rows)
    return EnvironmentSpec(
        train=[_example(problems, carries, lambda: rng.random() < slip) for problems in train],
        test=[_example(problems, carries) for problems in islice(_batches(_held_out_problems(kind), count), test_rows)],
    )


def _held_out_problems(kind: Difficulty) -> Iterator[Problem]:
    """Yield held-out problems without end, the same for every seed."""
    problems, rng = kind.tests(256), random.Random("tests")
    while True:
        yield rng.choice(problems)


def _batches(problems: Iterator[Problem], count: int) -> Iterator[list[Problem]]:
    while True:
        yield list(islice(problems, count))


def _example(problems: Sequence[Problem], carries: bool, forget: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": ";".join(f"{p.a}+{p.b}" for p in problems)}],
        "lines": [_line(p, carries) for p in problems],
        "demonstration": "\n".join(_line(p, carries, forget) for p in problems),
    }


def _line(problem: Problem, carries: bool, forget: Callable[[], bool] = lambda: False) -> str:
    """Return the column sums, two digits each, from the second on with the carry."""
    columns = [column.split("=") for column in problem.solve(forget)[0].split(";")]
    sums_of_columns = [f"{encode[-1]}={total:0>2}" if carries else f"{total:0>2}" for encode, total in columns]
    return ",".join([sums_of_columns[0][-2:], *sums_of_columns[1:]])


def right_lines(
    completions: Sequence[str], lines: Sequence[Sequence[str]], *, pay: Literal["all", "share"] = "all"
) -> list[float]:
    """Return 1 if all lines are correct and there is no other, or the share of correct lines.

    Blank lines are ignored.

    >>> right_lines(["12,13\\n11,05", "12,13\\n11,04"], [["12,13", "11,05"]] * 2)
    [1.0, 0.0]
    >>> right_lines(["12,13\\n", "12,13\\n11,05\\n0"], [["12,13", "11,05"]] * 2, pay="share")
    [0.5, 0.6666666666666666]
    """
    lines_of = [[line for line in texts.split("\n") if line.strip()] for texts in completions]
    correct = [each_line(texts, expected) for texts, expected in zip(lines_of, lines, strict=True)]
    shares = [sum(scores) / max(len(scores), len(expected)) for scores, expected in zip(correct, lines, strict=True)]
    return [float(share == 1) if pay == "all" else share for share in shares]


def each_line(texts: Sequence[str], lines: Sequence[str]) -> list[float]:
    """Return 1 for each line with the sum at its position, else 0. For the shaper `per_step`, as `by`.

    >>> each_line(["12,13\\n", "11,04", "1"], ["12,13", "11,05"])
    [1.0, 0.0, 0.0]
    """
    return [
        float(line.strip() == expected) for line, expected in zip(texts, [*lines, *[None] * len(texts)], strict=False)
    ]
