"""Rewards of this package."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_selfplay.languages import LANGUAGES
from rlm_selfplay.tasks import read


def role(role: Sequence[float]) -> list[float]:
    """Return the number of the completion's role: give it the weight 0, for advantages per role."""
    return [float(number) for number in role]


def self_play(
    completions: Sequence[str], language: Sequence[str], task: Sequence[str], score: Sequence[float | None]
) -> list[float]:
    """Return the score of the source `propose_and_solve`; of a held-out task 1 if it is solved, else 0.

    In training, completions are scored when they are generated, because the reward of a proposal requires the
    policy's answers to it. Held-out tasks are checked by execution, in the sandbox of rlm-sandbox.
    """
    return [
        _solution_score(text, name, task_text) if source_score is None else float(source_score)
        for text, name, task_text, source_score in zip(completions, language, task, score, strict=True)
    ]


def _solution_score(text: str, name: str, task_text: str) -> float:
    language, task = LANGUAGES[name], read(task_text)
    answer = language.read_answer(task, text)
    return float(answer is not None and language.is_right(task, answer))
