"""r: whether the way was always leading to its own answer (hook ``rlm_rewards``), read off the policy's likelihoods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlm_intrinsic.ballots import Answer, answer, rows_by
from rlm_intrinsic.states import Reader, Regex, states
from rlm_plugins.data.answer_extraction import Untagged, final_answers
from rlm_plugins.errors import PartError

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class PathConsistency:
    """How steadily the rows that give an answer were under way to it, and to no other answer of their group.

    r = ‖ mean_{j: aⱼ = aᵢ} Conⱼ · (cos Volⱼ, sin Volⱼ) ‖. CoVo, arXiv 2506.08745. A row passes the states s₁ … s_S, the
    ends of its steps before the one with the answer. In each the answers y of the group lie at the distances
    d(s, y) = −1/|y| Σ log π(y | s, `lead`). Con is the share of states in which the own answer is the nearest; Vol is 1
    less the share of them from which on no other is nearer. With `threshold` r is 1 or 0, as in the authors' code
    (0.5).

    `separator` is a regular expression for what ends a step; of more than `most` states as many are taken, evenly.
    Answers are read as for `majority_vote`; who gives none scores 0. A group with one answer has nothing to compare
    and is not scored, None. A row without a state counts with Con = 0. The policy itself reads, once for each row:
    all answers from all states are branches of one tree where its attention allows it, and rows of a batch elsewhere.

    The authors' further reward for curiosity is the surprise of a row less a penalty; of it the shaper
    ``{name: sequence_likelihood, weight: -0.1}`` is the first part. Their code counts the whole answer as a last state.

    Pitfalls: Vol only turns the vector, so a group of equally fickle rows loses nothing by it. The distance is a mean
    over tokens: a long answer with a certain tail is near from everywhere. And like every vote it pays for being sure.
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
        self._reader: Reader | None = None

    def setup(self, policy: Any, results: Mapping[str, Path], tokenizer: Any) -> None:
        """The policy that is trained or judged, which reads."""
        self._reader = Reader(policy, tokenizer)

    def __call__(
        self,
        prompt_messages: Sequence[Any],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Any = None,
    ) -> list[float | None]:
        if self._reader is None:
            raise PartError("has not met the policy, whose likelihoods it reads")
        given = [answer(text, self._tag, self._untagged) for text in completions]
        scores: list[float | None] = [None] * len(given)
        paths: list[tuple[float, float]] = []
        for rows in rows_by(prompt_messages).values():
            said = self._said({row: given[row] for row in rows}, completions)
            if len(said) > 1:
                walked = {row: self._path(prompt_messages[row], completion_ids[row], given[row], said) for row in rows}
                paths += [path for path in walked.values() if path]
                for row in rows:
                    alike = [path for other, path in walked.items() if path and given[other] == given[row]]
                    scores[row] = self._worth(alike) if walked[row] else 0.0
        for place, name in enumerate(("consistency", "volatility")):
            if log_metric is not None and paths:
                log_metric(f"path_consistency/{name}", sum(path[place] for path in paths) / len(paths))
        return scores

    def _said(self, given: Mapping[int, Answer | None], completions: Sequence[str]) -> dict[Answer, str]:
        """Answer → how it is written; where in several ways, in the first of the alphabet, whatever their order."""
        ways: dict[Answer, set[str]] = {}
        for row, one in given.items():
            if one is not None:
                ways.setdefault(one, set()).update(final_answers(completions[row], self._tag, self._untagged))
        return {one: min(texts).strip() for one, texts in ways.items()}

    def _path(
        self, prompt: Any, ids: Sequence[int], own: Answer | None, said: Mapping[Answer, str]
    ) -> tuple[float, float] | None:
        """Con and Vol of a row; None without an answer."""
        if own is None:
            return None
        assert self._reader is not None
        ends = states(self._reader.pieces(ids), self._separator, self._most)
        others = [text for other, text in said.items() if other != own]
        return features(self._reader.distances(prompt, ids, ends, self._lead, [said[own], *others]))

    def _worth(self, paths: Sequence[tuple[float, float]]) -> float:
        value = together(paths)
        return value if self._threshold is None else float(value >= self._threshold)


def features(distances: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Con and Vol, of the distances of each state to the own answer (first) and to the others.

    >>> features([[2.0, 1.0], [1.0, 2.0], [0.5, 2.0], [0.5, 3.0]])
    (0.75, 0.25)
    """
    if not distances:
        return 0.0, 1.0
    ahead = [own - min(others) for own, *others in distances]
    lasting = next((n for n, lead in enumerate(reversed(ahead)) if lead > 0), len(ahead))
    return sum(lead < 0 for lead in ahead) / len(ahead), 1 - lasting / len(ahead)


def together(paths: Sequence[tuple[float, float]]) -> float:
    """‖ mean Con · (cos Vol, sin Vol) ‖.

    >>> together([(0.5, 0.3), (1.0, 0.3)])
    0.75
    """
    east = sum(con * math.cos(vol) for con, vol in paths) / len(paths)
    north = sum(con * math.sin(vol) for con, vol in paths) / len(paths)
    return math.hypot(east, north)
