"""r: score of an answer by the rules of its world (hook ``rlm_rewards``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from rlm_plugins.data.answer_extraction import final_answers
from rlm_plugins.errors import PartError
from rlm_worlds.environments import WORLDS

MAX_LENGTH = 2000
"""Characters of an answer; a longer one is wrong."""


def world_score(
    completions: Sequence[str],
    world: Sequence[str | None],
    task: Sequence[str | None],
    *,
    tag: str = "answer",
    untagged: Literal["last_line", "wrong"] = "last_line",
) -> list[float | None]:
    """Return 1 if an answer solves its puzzle, else 0.

    The answer is the content of ``<answer>…</answer>`` after all thinking; several blocks must agree. Without a block
    it is the last line. Answers are parsed, never executed: a program text is no expression.

    Args:
        completions: Text of each completion (B).
        world: Name of the world of each completion's example.
        task: Its puzzle as JSON.
        tag: XML tag around the answer.
        untagged: Handling of completions without the tag.

    Returns:
        1 or 0 per completion; None for examples of no world.
    """
    return [
        None if not name or not puzzle else _score(text, name, puzzle, tag, untagged)
        for text, name, puzzle in zip(completions, world, task, strict=True)
    ]


def _score(text: str, name: str, puzzle: str, tag: str, untagged: Literal["last_line", "wrong"]) -> float:
    if name not in WORLDS:
        raise PartError(f"unknown world '{name}'", allowed=", ".join(WORLDS))
    answers = {answer.strip() for answer in final_answers(text, tag, untagged)}
    answer = answers.pop() if len(answers) == 1 else ""
    return float(0 < len(answer) <= MAX_LENGTH and WORLDS[name].is_solution(json.loads(puzzle), answer))
