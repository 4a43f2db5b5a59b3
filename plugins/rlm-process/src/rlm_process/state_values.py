"""Monte-Carlo values of intermediate states, from the policy's continuations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.equation.batch import Generate, RewardsOf
from rlm_process.step_boundaries import Cut

State = tuple[int, tuple[int, ...]]
"""An intermediate state: the group, and the tokens so far."""

Continue = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[float | None]]
"""(indices, prefixes) → scores: one continuation of each prefix, for the prompt at its index."""


@dataclass(frozen=True)
class ContinuationSampler:
    """Sampler of continuations, as :data:`Continue`, from data of the scoring phase.

    Args:
        prompts: Prompt of every completion.
        inputs: Example of every completion.
        generate: Generates continuations of prefixes.
        rewards_of: Scores complete answers with the recipe's rewards.
    """

    prompts: Sequence[Any]
    inputs: Sequence[Any]
    generate: Generate
    rewards_of: RewardsOf

    def __call__(self, indices: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[float | None]:
        """Generate continuations and score the complete answers."""
        continuations = self.generate([self.prompts[index] for index in indices], prefixes)
        return self.score_answers(indices, [[*start, *end] for start, end in zip(prefixes, continuations, strict=True)])

    def score_answers(self, indices: Sequence[int], completions: Sequence[Sequence[int]]) -> list[float | None]:
        """Score complete answers with the recipe's rewards, before any shaper; None where none applies."""
        answers = [(index, tuple(completion)) for index, completion in zip(indices, completions, strict=True)]
        index_of = {answer: position for position, answer in enumerate(dict.fromkeys(answers))}
        scores = self.rewards_of(  # equal answers are scored once
            [self.prompts[index] for index, _ in index_of],
            [list(completion) for _, completion in index_of],
            [self.inputs[index] for index, _ in index_of],
        ).tolist()
        score_of = {answer: scores[position] for answer, position in index_of.items()}
        # NaN, the mark of "not scored", is the one value that differs from itself
        return [None if score_of[answer] != score_of[answer] else score_of[answer] for answer in answers]


def step_states(
    group: Sequence[int], completions: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
) -> list[list[State]]:
    """Return per completion the state before each step; completions of a group with equal prefixes share states.

    >>> step_states([4, 4], [[1, 2, 3], [1, 5]], [[1, 3], [1, 2]])
    [[(4, ()), (4, (1,))], [(4, ()), (4, (1,))]]
    """
    return [
        [(int(group_id), tuple(ids[:start])) for start in (0, *step_ends[:-1])] if step_ends else []
        for group_id, ids, step_ends in zip(group, completions, ends, strict=True)
    ]


def cut_into_states(
    group: Sequence[int], completions: Sequence[Sequence[int]], cut: Cut
) -> tuple[list[list[int]], list[list[State]]]:
    """Return the ends of each completion's steps, and the state before each step."""
    ends = [cut(ids) for ids in completions]
    return ends, step_states(group, completions, ends)


def sample_continuations(
    states: Sequence[Sequence[State]], continue_and_score: Continue, *, continuations: int
) -> dict[State, list[float]]:
    """Score continuations from each distinct state.

    Args:
        states: Per completion, the states to evaluate.
        continue_and_score: Generates and scores.
        continuations: Number K of continuations per state.

    Returns:
        State → scores; fewer than K where no reward applied to some.
    """
    completion_of: dict[State, int] = {}
    for index, completion_states in enumerate(states):
        for state in completion_states:
            completion_of.setdefault(state, index)
    indices = [index for index in completion_of.values() for _ in range(continuations)]
    scores = continue_and_score(indices, [state[1] for state in completion_of for _ in range(continuations)])
    chunks = [scores[i : i + continuations] for i in range(0, len(indices), continuations)]
    scores_of = zip(completion_of, chunks, strict=True)
    return {state: [score for score in chunk if score is not None] for state, chunk in scores_of}


def mean_values(scores: Mapping[State, Sequence[float]]) -> dict[State, float | None]:
    """Return V of each state; None where all scores are missing."""
    return {state: sum(values) / len(values) if values else None for state, values in scores.items()}
