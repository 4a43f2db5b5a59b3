"""Several sums in one answer, one per line: a small world in which it matters which step was wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from rlm_plugins.data.addition import Kind, Problem
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
    """`count` sums of two numbers in one question, added line by line: ``47+85;12+39`` → ``12,13`` and ``11,05``.

    A line is what the columns of a sum add up to, from the right, carry included: 47+85 is 7+5 = 12 and 4+8+1 = 13. The
    lines have nothing to do with each other: each is right or wrong by itself, and an answer only if all of them are.
    With `carries` each column but the first begins with what was carried, ``12,1=13``: a line then shows by itself
    whether a carry was forgotten.

    Columns: ``prompt``, ``demonstration`` and ``lines``, the right ones. `slip` makes the training demonstrations
    sloppy: a due carry is forgotten with this probability. One sum in eight, chosen by its hash as in `addition`, is
    never trained on; test questions are made of these alone.

    >>> [row] = sums(count=2, test_rows=0, train_rows=1).train
    >>> row["prompt"][0]["content"], row["demonstration"]
    ('73+16;20+94', '09,08\\n04,11')
    """
    kind, slips = Kind(range(digits, digits + 1), 0, digits), random.Random(f"slips {seed}")
    train = islice(_together(kind.training(seed), count), train_rows)
    return EnvironmentSpec(
        train=[_row(some, carries, lambda: slips.random() < slip) for some in train],
        test=[_row(some, carries) for some in islice(_together(_held_out(kind), count), test_rows)],
    )


def _held_out(kind: Kind) -> Iterator[Problem]:
    """An endless stream of them, the same for every seed."""
    problems, dice = kind.tests(256), random.Random("tests")
    while True:
        yield dice.choice(problems)


def _together(problems: Iterator[Problem], count: int) -> Iterator[list[Problem]]:
    while True:
        yield list(islice(problems, count))


def _row(problems: Sequence[Problem], carries: bool, forget: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": ";".join(f"{p.a}+{p.b}" for p in problems)}],
        "lines": [_line(p, carries) for p in problems],
        "demonstration": "\n".join(_line(p, carries, forget) for p in problems),
    }


def _line(problem: Problem, carries: bool, forget: Callable[[], bool] = lambda: False) -> str:
    """What its columns add up to, in two places each, from the second on with what was carried before it."""
    columns = [column.split("=") for column in problem.work(forget)[0].split(";")]
    said = [f"{asked[-1]}={total:0>2}" if carries else f"{total:0>2}" for asked, total in columns]
    return ",".join([said[0][-2:], *said[1:]])


def right_lines(
    completions: Sequence[str], lines: Sequence[Sequence[str]], *, pay: Literal["all", "share"] = "all"
) -> list[float]:
    """Whether an answer is right line by line: 1 if all lines are and there is no other, or the share of them that is.

    What is blank is no line, as it is no step.

    >>> right_lines(["12,13\\n11,05", "12,13\\n11,04"], [["12,13", "11,05"]] * 2)
    [1.0, 0.0]
    >>> right_lines(["12,13\\n", "12,13\\n11,05\\n0"], [["12,13", "11,05"]] * 2, pay="share")
    [0.5, 0.6666666666666666]
    """
    written = [[line for line in said.split("\n") if line.strip()] for said in completions]
    verdicts = [each_line(said, gold) for said, gold in zip(written, lines, strict=True)]
    shares = [sum(row) / max(len(row), len(gold)) for row, gold in zip(verdicts, lines, strict=True)]
    return [float(share == 1) if pay == "all" else share for share in shares]


def each_line(said: Sequence[str], lines: Sequence[str]) -> list[float]:
    """1 for a line that says the sum of its place, 0 for any other. For the shaper `per_step`, as `by`.

    >>> each_line(["12,13\\n", "11,04", "1"], ["12,13", "11,05"])
    [1.0, 0.0, 0.0]
    """
    return [float(line.strip() == right) for line, right in zip(said, [*lines, *[None] * len(said)], strict=False)]
