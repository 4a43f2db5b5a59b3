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

    In training, completions were scored when they were generated, since the reward of a proposal requires the
    policy's answers to it. Held-out tasks are checked by execution, in the sandbox of rlm-sandbox.
    """
    rows = zip(completions, language, task, score, strict=True)
    return [_solved(text, name, task_text) if given is None else float(given) for text, name, task_text, given in rows]


def _solved(text: str, language: str, task_text: str) -> float:
    words, task = LANGUAGES[language], read(task_text)
    answer = words.read_answer(task, text)
    return float(answer is not None and words.is_right(task, answer))
