"""r: consistency of intermediate steps with the final answer (hook ``rlm_rewards``), from the policy's likelihoods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_intrinsic.answer_likelihoods import AnswerLikelihoods, Regex, step_ends
from rlm_intrinsic.vote_counting import Answer, answer, group_indices
from rlm_plugins.data.answer_extraction import Untagged, final_answers
from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import PartError


class PathConsistency:
    """Consistency of a completion's steps with its answer, compared with the other answers of the group.

    r = ‖ mean_{j: aⱼ = aᵢ} Conⱼ · (cos Volⱼ, sin Volⱼ) ‖. CoVo, arXiv 2506.08745. A completion has the states s₁ … s_S,
    the ends of its steps before the one with the answer. From each state the answers y of the group have the distances
    d(s, y) = −1/|y| Σ log π(y | s, `lead`). Con is the share of states in which the completion's answer is the nearest.
    Vol is 1 minus the share of final states in which no other answer is nearer. With `threshold` r is 1 or 0, as in the
    authors' code (0.5).

    `separator` is a regular expression for the end of a step; at most `most` states are used, evenly spaced.
    Answers are extracted as for `majority_vote`; without one the score is 0. A group with a single answer has no
    comparison and is not scored: None. A completion without a state has Con = 0. The likelihoods come from the policy
    itself, in one padded batch per completion. The curiosity reward of the authors is not included. Their code also
    counts the whole answer as a last state.

    Pitfalls: Vol only rotates the vector, so equal volatility in a group does not change the norm. The distance is a
    mean over tokens, so a long answer with a certain tail is near in every state. Like every vote, this rewards
    certainty.
    """

    def __init__(
        self,
        *,
        separator: Regex = r"\n",
        lead: str = "\nThe answer is: ",
        most: Count = 15,
        threshold: Share | None = None,
        tag: str = "answer",
        untagged: Untagged = "last_line",
    ) -> None:
        self._separator, self._lead, self._most, self._threshold = separator, lead, most, threshold
        self._tag, self._untagged = tag, untagged
        self._likelihoods: AnswerLikelihoods | None = None

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        """Receive the policy that is trained or evaluated, whose likelihoods are used."""
        self._likelihoods = AnswerLikelihoods(policy, tokenizer)

    def __call__(
        self,
        prompt_messages: Sequence[Any],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Any = None,
    ) -> list[float | None]:
        """Return the score of each completion."""
        if self._likelihoods is None:
            raise PartError("requires the policy, whose likelihoods it uses")
        answers = [answer(text, self._tag, self._untagged) for text in completions]
        scores: list[float | None] = [None] * len(answers)
        paths: list[tuple[float, float]] = []
        for group in group_indices(prompt_messages).values():
            spellings = self._spellings({member: answers[member] for member in group}, completions)
            if len(spellings) > 1:
                paths_of = {
                    member: self._consistency(
                        prompt_messages[member], completion_ids[member], answers[member], spellings
                    )
                    for member in group
                }
                paths += [path for path in paths_of.values() if path]
                for member in group:
                    same_answer = [
                        path for index, path in paths_of.items() if path and answers[index] == answers[member]
                    ]
                    scores[member] = self._reward(same_answer) if paths_of[member] else 0.0
        for index, name in enumerate(("consistency", "volatility")):
            if log_metric is not None and paths:
                log_metric(f"path_consistency/{name}", sum(path[index] for path in paths) / len(paths))
        return scores

    def _spellings(self, answers: Mapping[int, Answer | None], completions: Sequence[str]) -> dict[Answer, str]:
        """Return answer → its text; among several spellings the alphabetically first, independent of order."""
        texts_of: dict[Answer, set[str]] = {}
        for index, final_answer in answers.items():
            if final_answer is not None:
                texts = final_answers(completions[index], self._tag, self._untagged)
                texts_of.setdefault(final_answer, set()).update(texts)
        return {final_answer: min(texts).strip() for final_answer, texts in texts_of.items()}

    def _consistency(
        self, prompt: Any, ids: Sequence[int], final_answer: Answer | None, spellings: Mapping[Answer, str]
    ) -> tuple[float, float] | None:
        """Return Con and Vol of a completion; None without an answer."""
        if final_answer is None:
            return None
        assert self._likelihoods is not None
        cuts = step_ends(self._likelihoods.token_texts(ids), self._separator, self._most)
        texts = [spellings[final_answer], *(text for key, text in spellings.items() if key != final_answer)]
        return consistency_and_volatility(self._likelihoods.distances(prompt, ids, cuts, self._lead, texts))

    def _reward(self, paths: Sequence[tuple[float, float]]) -> float:
        value = joint_consistency(paths)
        return value if self._threshold is None else float(value >= self._threshold)


def consistency_and_volatility(distances: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return Con and Vol from each state's distances to the completion's answer (first) and to the other answers.

    >>> consistency_and_volatility([[2.0, 1.0], [1.0, 2.0], [0.5, 2.0], [0.5, 3.0]])
    (0.75, 0.25)
    """
    if not distances:
        return 0.0, 1.0
    margins = [distance - min(alternatives) for distance, *alternatives in distances]
    stable = next((count for count, margin in enumerate(reversed(margins)) if margin > 0), len(margins))
    return sum(margin < 0 for margin in margins) / len(margins), 1 - stable / len(margins)


def joint_consistency(paths: Sequence[tuple[float, float]]) -> float:
    """Compute ‖ mean Con · (cos Vol, sin Vol) ‖.

    >>> joint_consistency([(0.5, 0.3), (1.0, 0.3)])
    0.75
    """
    x = sum(con * math.cos(vol) for con, vol in paths) / len(paths)
    y = sum(con * math.sin(vol) for con, vol in paths) / len(paths)
    return math.hypot(x, y)
