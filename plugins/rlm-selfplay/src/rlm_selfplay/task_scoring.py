"""Scores of proposals and of solutions, by execution or by votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlm_selfplay.languages import Language, Task


def learnability(rate: float) -> float:
    """Return 0 for a task that is always or never solved, else its failure rate: r = 1 − p̂ if 0 < p̂ < 1, else 0.

    Absolute Zero, arXiv 2505.03335 eq. 4.

    >>> learnability(0.25), learnability(0.0), learnability(1.0)
    (0.75, 0.0, 0.0)
    """
    return 1.0 - rate if 0 < rate < 1 else 0.0


def uncertainty(rate: float) -> float:
    """Return 1 where the solver is right half of the time, 0 where it always or never is: r = 1 − 2 |p̂ − ½|.

    R-Zero, arXiv 2508.05004 eq. 3; p̂ is the share of the most frequent answer there.

    >>> uncertainty(0.5), uncertainty(0.75), uncertainty(1.0)
    (1.0, 0.5, 0.0)
    """
    return 1.0 - 2.0 * abs(rate - 0.5)


def disagreement(rate: float) -> float:
    """Return 1 if some, but not all, of the solver's answers are right: r = 1[0 < p̂ < 1].

    Self-questioning language models (SQLM), arXiv 2508.03682.

    >>> disagreement(0.125), disagreement(1.0)
    (1.0, 0.0)
    """
    return float(0 < rate < 1)


REWARDS: dict[str, Callable[[float], float]] = {
    "learnability": learnability,
    "uncertainty": uncertainty,
    "disagreement": disagreement,
}
"""Knob → reward of a task by its solve rate p̂."""


def repetition(texts: Sequence[str], threshold: float) -> list[float]:
    """Return the share of the batch that is similar to each text: |C| / B, C its cluster.

    R-Zero, arXiv 2508.05004 eq. 4: the penalty λ |C_k| / B is subtracted from the uncertainty, and the result is not
    below 0. The paper clusters by BLEU with average linkage. Here two texts are linked if the Jaccard index of their
    trigrams of characters is `threshold` or more; a cluster is a connected component of these links.

    >>> repetition(["3+4*x", "3+4*x", "abcdef"], 0.5)
    [0.6666666666666666, 0.6666666666666666, 0.3333333333333333]
    """
    cluster = list(range(len(texts)))
    trigrams = [_trigrams(text) for text in texts]
    for i in range(len(texts)):
        for j in range(i):
            shared = len(trigrams[i] & trigrams[j]) / len(trigrams[i] | trigrams[j])
            if shared >= threshold and cluster[i] != cluster[j]:
                old, new = cluster[i], cluster[j]
                cluster = [new if number == old else number for number in cluster]
    return [cluster.count(number) / len(texts) for number in cluster]


def _trigrams(text: str) -> set[str]:
    padded = f"^{text}$"
    return {padded[i : i + 3] for i in range(max(1, len(padded) - 2))}


Labels = Literal["execution", "majority"]
Write = Callable[[Sequence[Any]], list[str]]
"""Prompts → one sampled completion each, as text."""


@dataclass
class Turn:
    """One completion: its role, its task, and its score.

    Args:
        job: `propose` or `solve`.
        kind: Kind of the task.
        task: The task to solve, or the reference of a proposal.
        score: Reward of the completion.
        proposal: The proposed task; None if it is invalid, or if the completion is a solution.
    """

    job: str
    kind: str
    task: Task
    score: float = 0.0
    proposal: Task | None = None


@dataclass(frozen=True)
class TaskScoring:
    """Knobs of :class:`~rlm_selfplay.propose_and_solve.ProposeAndSolve` that determine scores.

    Args:
        language: Language of the tasks.
        attempts: Answers sampled for each valid proposal.
        reward: Reward of a proposal by the share of right attempts.
        labels: An answer is right by `execution`, or if it is the most frequent one (`majority`).
        keep: Lowest and highest share of right attempts of a proposal that is kept.
        repetition: Coefficient of the penalty for similar proposals.
        similarity: Lowest similarity of two proposals that count as similar.
        wrong: Score of a wrong solution, and of an invalid proposal.
        unreadable: Score of a completion that is not in the format.
    """

    language: Language
    attempts: int
    reward: Literal["learnability", "uncertainty", "disagreement"]
    labels: Labels
    keep: tuple[float, float]
    repetition: float
    similarity: float
    wrong: float
    unreadable: float

    def prompt(self, task: Task) -> list[dict[str, str]]:
        return as_message(self.language.task_prompt(task))

    def is_right(self, task: Task, answer: str) -> bool:
        return task.outputs == (answer,) if self.labels == "majority" else self.language.is_right(task, answer)

    def score(self, turns: Sequence[Turn], texts: Sequence[str], write: Write) -> None:
        """Set the score of each turn by its text, and the proposal of those that propose a task to keep."""
        completed: dict[Task, Task | None] = {}
        for turn, text in zip(turns, texts, strict=True):
            if turn.job == "solve":
                turn.score = self._solution_score(turn.task, text)
            else:
                proposal = self.language.read_proposal(turn.kind, text, turn.task)
                if proposal is not None and proposal not in completed:
                    completed[proposal] = self.language.complete(proposal)
                turn.proposal = None if proposal is None else completed[proposal]
                turn.score = self.unreadable if proposal is None else self.wrong
        self._score_proposals([turn for turn in turns if turn.proposal is not None], write)

    def _solution_score(self, task: Task, text: str) -> float:
        answer = self.language.read_answer(task, text)
        if answer is None:
            return self.unreadable
        return 1.0 if self.is_right(task, answer) else self.wrong

    def _score_proposals(self, turns: Sequence[Turn], write: Write) -> None:
        """Set the score of each valid proposal from attempts at it, and remove those that are not kept."""
        tasks = [turn.proposal for turn in turns if turn.proposal is not None]
        texts = write([self.prompt(task) for task in tasks for _ in range(self.attempts)])
        similar = repetition([task.question() for task in tasks], self.similarity)
        for number, (turn, task) in enumerate(zip(turns, tasks, strict=True)):
            rate, labelled = self._rate(task, texts[number * self.attempts : (number + 1) * self.attempts])
            turn.score = max(0.0, REWARDS[self.reward](rate) - self.repetition * similar[number])
            turn.proposal = labelled if self.keep[0] <= rate <= self.keep[1] else None

    def _rate(self, task: Task, texts: Sequence[str]) -> tuple[float, Task]:
        """Return the share of right answers, and the task with its label."""
        answers = [self.language.read_answer(task, text) for text in texts]
        votes = Counter(answer for answer in answers if answer is not None)
        if self.labels == "majority" and votes:
            ((label, count),) = votes.most_common(1)
            return count / len(texts), replace(task, outputs=(label,))
        num_right = sum(count for answer, count in votes.items() if self.is_right(task, answer))
        return num_right / len(texts), task


def as_message(text: str) -> list[dict[str, str]]:
    """Return a prompt of one message."""
    return [{"role": "user", "content": text}]
