"""r: score of the path through a maze (hook ``rlm_rewards``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from rlm_plugins.data.answer_extraction import final_answers
from rlm_worlds.mazes import is_solution

MAX_LENGTH = 2000
"""Characters of an answer; a longer one is wrong."""


def world_score(
    completions: Sequence[str],
    task: Sequence[str | None],
    *,
    tag: str = "answer",
    untagged: Literal["last_line", "wrong"] = "last_line",
) -> list[float | None]:
    """Return 1 if an answer solves its puzzle, else 0.

    The answer is the content of ``<answer>…</answer>`` after all thinking; several blocks must agree. Without a block
    it is the last line.

    Args:
        completions: Text of each completion (B).
        task: The puzzle of each completion's example as JSON.
        tag: XML tag around the answer.
        untagged: Handling of completions without the tag.

    Returns:
        1 or 0 per completion; None for examples without a puzzle.
    """
    return [
        None if not puzzle else _score(text, puzzle, tag, untagged)
        for text, puzzle in zip(completions, task, strict=True)
    ]


def _score(text: str, puzzle: str, tag: str, untagged: Literal["last_line", "wrong"]) -> float:
    answers = {answer.strip() for answer in final_answers(text, tag, untagged)}
    answer = answers.pop() if len(answers) == 1 else ""
    return float(0 < len(answer) <= MAX_LENGTH and is_solution(json.loads(puzzle)["grid"], answer))
