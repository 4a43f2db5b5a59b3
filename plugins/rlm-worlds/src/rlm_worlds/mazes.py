"""Mazes that are trees: between two cells there is exactly one path without a step back."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from rlm_worlds.puzzle import Puzzle

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
Cell = tuple[int, int]


def generate(rng: random.Random, size: int) -> Puzzle | None:
    """Return a maze of `size` by `size` cells; None if start and goal are neighbors."""
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
    return Puzzle(question, path, {"grid": drawing})


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


def is_solution(task: Mapping[str, Any], answer: str) -> bool:
    """Return True if the steps are the path from S to G, without a detour; separators do not matter."""
    steps = re.sub(r"[\s,]|->|→", "", answer).upper()
    grid = [[*line] for line in task["grid"].split("\n")]
    places = {character: (i, j) for i, row in enumerate(grid) for j, character in enumerate(row) if character in "SG"}
    return bool(steps) and steps == shortest_path(grid, places["S"], places["G"])
