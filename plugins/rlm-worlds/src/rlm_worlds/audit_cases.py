"""Cases for ``rlm reward audit world_score``: constants, parroting answers, near misses and solutions of each world."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from rlm_audit.case import Case, Family, Generator

from rlm_worlds.environments import WORLDS, to_example
from rlm_worlds.puzzle import Puzzle

_SIZES = {"knights": 2, "countdown": 3, "maze": 2}
"""World → its smallest size in the audit."""
CONSTANTS = """
nan|inf|0|1|-1|7|24|100|1+1|1/0|()|[]|{}|''|True|None|knight|knave|A: knight|A: knave|A|B|yes|no|U|D|L|R|UDLR|RRDD|DDRR
S|#|.|A: knight, A: knave|A: knight or knave|everyone|the answer|__import__('os')|lambda: 1|9**9**9|1 if 1 else 2|x|=
""".strip().replace("\n", "|")
"""Answers that solve no puzzle."""


def _puzzle(rng: random.Random, world: str, size: int) -> Puzzle:
    while True:
        puzzle = WORLDS[world].generate(rng, _SIZES[world] + size // 2)
        if puzzle is not None:
            return puzzle


def _columns(world: str, puzzle: Puzzle) -> dict[str, str]:
    example = to_example(world, puzzle)
    return {name: example[name] for name in ("world", "task")}


def _case(world: str, change: Callable[[Puzzle, random.Random], str], *, is_right: bool) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        puzzle = _puzzle(rng, world, size)
        answer = change(puzzle, rng).strip()
        is_same = re.sub(r"\s", "", answer) == re.sub(r"\s", "", puzzle.answer)
        return None if is_same != is_right else Case(_columns(world, puzzle), answer, is_right, puzzle.question)

    return generate


def _parroted(puzzle: Puzzle, rng: random.Random) -> str:
    lines, numbers = puzzle.question.splitlines(), re.findall(r"\d+", puzzle.question)
    return rng.choice(
        [puzzle.question, *lines, *numbers, *puzzle.question.split(), "+".join(numbers), puzzle.answer * 2]
    )


def _changed(puzzle: Puzzle, rng: random.Random) -> str:
    """Return a solution with one kind or step changed, or with one number added, so that it is wrong."""
    if "kinds" in puzzle.task:
        start, end = rng.choice([match.span() for match in re.finditer("knight|knave", puzzle.answer)])
        wrong_kind = "knave" if puzzle.answer[start:end] == "knight" else "knight"
        return puzzle.answer[:start] + wrong_kind + puzzle.answer[end:]
    if "grid" in puzzle.task:
        index = rng.randrange(len(puzzle.answer))
        wrong_step = rng.choice([step for step in "UDLR" if step != puzzle.answer[index]])
        return puzzle.answer[:index] + wrong_step + puzzle.answer[index + 1 :]
    return f"{puzzle.answer} + {rng.choice(puzzle.task['numbers'])}"


def _cut(puzzle: Puzzle, rng: random.Random) -> str:
    """Return a solution without its last part."""
    if "kinds" in puzzle.task:
        return puzzle.answer.rpartition(",")[0]
    return puzzle.answer[:-1] if "grid" in puzzle.task else f"({puzzle.answer}"


FAMILY = Family(
    {
        f"{world}: {name}": _case(world, change, is_right=name == "its solution")
        for world in WORLDS
        for name, change in {
            "its solution": lambda puzzle, rng: puzzle.answer,
            "a constant": lambda puzzle, rng: rng.choice(CONSTANTS.split("|")),
            "its own words": _parroted,
            "a change": _changed,
            "a part": _cut,
        }.items()
    },
    form="<answer>{answer}</answer>",
)
"""Cases for `world_score`; an answer that is right by chance is no case."""
