"""Cases for ``rlm reward audit world_score``: constants, parroting answers, near misses and solutions of mazes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from rlm_audit.case import Case, Family, Generator

from rlm_worlds.mazes import generate

CONSTANTS = """
nan|inf|0|1|-1|()|[]|{}|''|True|None|yes|no|U|D|L|R|UDLR|RRDD|DDRR|S|#|.|x|the answer
""".strip().split("|")
"""Answers that solve no maze, but by chance."""


def _case(change: Callable[[Mapping[str, Any], random.Random], str], *, is_right: bool) -> Generator:
    def case(rng: random.Random, size: int) -> Case | None:
        maze = generate(rng, 2 + size // 2)
        while maze is None:
            maze = generate(rng, 2 + size // 2)
        answer = change(maze, rng).strip()
        is_same = answer == maze["answer"]
        return None if is_same != is_right else Case({"task": maze["task"]}, answer, is_right, maze["question"])

    return case


def _parroted(maze: Mapping[str, Any], rng: random.Random) -> str:
    question = maze["question"]
    return rng.choice([question, *question.splitlines(), *question.split(), maze["answer"] * 2])


def _changed(maze: Mapping[str, Any], rng: random.Random) -> str:
    """Return a solution with one step changed."""
    path = maze["answer"]
    index = rng.randrange(len(path))
    return path[:index] + rng.choice([step for step in "UDLR" if step != path[index]]) + path[index + 1 :]


FAMILY = Family(
    {
        "its solution": _case(lambda maze, rng: str(maze["answer"]), is_right=True),
        "a constant": _case(lambda maze, rng: rng.choice(CONSTANTS), is_right=False),
        "its own words": _case(_parroted, is_right=False),
        "a change": _case(_changed, is_right=False),
        "a part": _case(lambda maze, rng: str(maze["answer"])[:-1], is_right=False),
    },
    form="<answer>{answer}</answer>",
)
"""Cases for `world_score`; an answer that is right by chance is no case."""
