"""x: puzzles as environments (hook ``rlm_environments``)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds import countdown_numbers, knights_and_knaves, mazes
from rlm_worlds.puzzle import Puzzle, is_held_out

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
People = Annotated[int, Field(ge=2, le=8)]
Numbers = Annotated[int, Field(ge=2, le=8)]
Size = Annotated[int, Field(ge=2, le=20)]


class World(NamedTuple):
    """Functions that generate and score the puzzles of a world."""

    generate: Callable[[random.Random, int], Puzzle | None]
    is_solution: Callable[[Mapping[str, Any], str], bool]


WORLDS = {
    "knights": World(knights_and_knaves.generate, knights_and_knaves.is_solution),
    "countdown": World(countdown_numbers.generate, countdown_numbers.is_solution),
    "maze": World(mazes.generate, mazes.is_solution),
}
"""Name → world."""
MAX_DRAWS = 2000
"""Consecutive draws without a new puzzle after which generation stops."""


def knights(
    *, people: People = 3, train_rows: Count = 2048, test_rows: Natural = 100, seed: int = 0
) -> EnvironmentSpec:
    """Build puzzles of knights and knaves with one solution each; reward: `world_score`.

    Columns: ``prompt``, ``question``, ``answer`` (the solution), ``demonstration``, ``world``, ``task``. All 2^`people`
    assignments are checked, so that the solution is the only one. One question in eight, by its hash, is held
    out.
    """
    return _environment("knights", people, train_rows, test_rows, seed)


def countdown(
    *, numbers: Numbers = 4, train_rows: Count = 2048, test_rows: Natural = 100, seed: int = 0
) -> EnvironmentSpec:
    """Build targets that are made from `numbers` numbers with + - * /; reward: `world_score`.

    Columns as in `knights`. Every target has a solution with all numbers, and is none of them. Any expression of the
    given numbers with its value is right. One question in eight, by its hash, is held out.
    """
    return _environment("countdown", numbers, train_rows, test_rows, seed)


def maze(*, size: Size = 4, train_rows: Count = 2048, test_rows: Natural = 100, seed: int = 0) -> EnvironmentSpec:
    """Build mazes of `size` by `size` cells with one path from start to goal; reward: `world_score`.

    Columns as in `knights`. A maze is a spanning tree, so that its path is the only one without a step back. One
    question in eight, by its hash, is held out.
    """
    return _environment("maze", size, train_rows, test_rows, seed)


def _environment(world: str, size: int, train_rows: int, test_rows: int, seed: int) -> EnvironmentSpec:
    examples: dict[bool, dict[str, dict[str, Any]]] = {False: {}, True: {}}
    counts = {False: train_rows, True: test_rows}
    rngs = {False: random.Random(f"{world} {size} {seed}"), True: random.Random(f"{world} {size} held out")}
    for held_out, rng in rngs.items():  # the test examples do not depend on the seed
        failures = 0
        while len(examples[held_out]) < counts[held_out] and failures < MAX_DRAWS:
            puzzle = WORLDS[world].generate(rng, size)
            is_new = puzzle is not None and is_held_out(puzzle.question) == held_out
            if puzzle is None or not is_new or puzzle.question in examples[held_out]:
                failures += 1
                continue
            failures, examples[held_out][puzzle.question] = 0, to_example(world, puzzle)
    if not examples[False]:
        raise RecipeError(f"'{world}' has no puzzle of size {size}", where="environment")
    return EnvironmentSpec(train=[*examples[False].values()], test=[*examples[True].values()])


def to_example(world: str, puzzle: Puzzle) -> dict[str, Any]:
    """Return the example of a puzzle."""
    return {
        "prompt": [{"role": "user", "content": puzzle.question}],
        "question": puzzle.question,
        "answer": puzzle.answer,
        "demonstration": f"<answer>{puzzle.answer}</answer>",
        "world": world,
        "task": json.dumps(puzzle.task),
    }
