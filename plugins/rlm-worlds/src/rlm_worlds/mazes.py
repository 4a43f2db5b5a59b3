"""x: mazes that are trees (hook ``rlm_environments``): between two cells there is one path without a step back."""

from __future__ import annotations

import hashlib
import json
import random
import re
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
MAX_DRAWS = 2000
"""Draws without a new maze after which generation stops."""
Cell = tuple[int, int]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=2, le=20)]


def maze(*, size: Size = 4, train_rows: Count = 2048, test_rows: Natural = 100, seed: int = 0) -> EnvironmentSpec:
    """Build mazes of `size` by `size` cells with one path from start to goal; reward: `world_score`.

    Columns: ``prompt``, ``question``, ``answer`` (the path), ``demonstration``, ``task`` (the grid, as JSON). A maze is
    a spanning tree, so that its path is the only one without a step back. One question in eight, by its hash, is held
    out.
    """
    examples: dict[bool, dict[str, dict[str, Any]]] = {False: {}, True: {}}
    counts = {False: train_rows, True: test_rows}
    rngs = {False: random.Random(f"maze {size} {seed}"), True: random.Random(f"maze {size} held out")}
    for held_out, rng in rngs.items():  # the test examples do not depend on the seed
        failures = 0
        while len(examples[held_out]) < counts[held_out] and failures < MAX_DRAWS:
            example = generate(rng, size)
            is_new = example is not None and _is_held_out(example["question"]) == held_out
            if example is None or not is_new or example["question"] in examples[held_out]:
                failures += 1
                continue
            failures, examples[held_out][example["question"]] = 0, example
    return EnvironmentSpec(train=[*examples[False].values()], test=[*examples[True].values()])


def _is_held_out(question: str) -> bool:
    """Return True for one question in eight, by its hash."""
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] < 32


def generate(rng: random.Random, size: int) -> dict[str, Any] | None:
    """Return the example of a maze of `size` by `size` cells; None if start and goal are neighbors."""
    grid = _carved(rng, size)
    cells = [(2 * row + 1, 2 * column + 1) for row in range(size) for column in range(size)]
    start, goal = rng.sample(cells, 2)
    path = shortest_path(grid, start, goal)
    if len(path) < size:
        return None
    grid[start[0]][start[1]], grid[goal[0]][goal[1]] = "S", "G"
    drawing = "\n".join("".join(row) for row in grid)
    question = (
        f"Find the way from S to G. Walls are #. A step moves two characters: from one cell to the next.\n{drawing}\n"
        "Answer with the steps alone: U, D, L, R without spaces."
    )
    return {
        "prompt": [{"role": "user", "content": question}],
        "question": question,
        "answer": path,
        "demonstration": f"<answer>{path}</answer>",
        "task": json.dumps({"grid": drawing}),
    }


def _carved(rng: random.Random, size: int) -> list[list[str]]:
    """Return a random spanning tree of the cells, drawn with walls."""
    grid = [["#"] * (2 * size + 1) for _ in range(2 * size + 1)]
    stack = [(2 * rng.randrange(size) + 1, 2 * rng.randrange(size) + 1)]
    grid[stack[0][0]][stack[0][1]] = "."
    while stack:
        row, column = stack[-1]
        closed = [
            (down, right)
            for down, right in STEPS.values()
            if 0 < row + 2 * down < 2 * size and 0 < column + 2 * right < 2 * size
            if grid[row + 2 * down][column + 2 * right] == "#"
        ]
        if not closed:
            stack.pop()
            continue
        down, right = rng.choice(closed)
        for distance in (1, 2):
            grid[row + distance * down][column + distance * right] = "."
        stack.append((row + 2 * down, column + 2 * right))
    return grid


def shortest_path(grid: list[list[str]], start: Cell, goal: Cell) -> str:
    """Return the steps of the shortest path, by breadth-first search; empty if there is none."""
    paths, queue = {start: ""}, [start]
    for row, column in queue:
        for letter, (down, right) in STEPS.items():
            after = (row + 2 * down, column + 2 * right)
            if grid[row + down][column + right] != "#" and after not in paths:
                paths[after] = paths[row, column] + letter
                queue.append(after)
    return paths.get(goal, "")


def is_solution(drawing: str, answer: str) -> bool:
    """Return True if the steps are the path from S to G, without a detour; separators do not matter."""
    steps = re.sub(r"[\s,]|->|→", "", answer).upper()
    grid = [[*line] for line in drawing.split("\n")]
    places = {character: (i, j) for i, row in enumerate(grid) for j, character in enumerate(row) if character in "SG"}
    return bool(steps) and steps == shortest_path(grid, places["S"], places["G"])
