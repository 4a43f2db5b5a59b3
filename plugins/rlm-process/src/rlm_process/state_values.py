"""Monte-Carlo values of intermediate states, from the policy's continuations: an advantage, and labels of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt

from rlm_plugins.durable.files import JsonLines, make_folder
from rlm_plugins.equation.batch import Generate, Log, RewardsOf
from rlm_plugins.equation.statistics import whiten as whiten_over_mask
from rlm_plugins.lazy import torch
from rlm_process.step_boundaries import Cut, Steps, step_cutter, token_texts

State = tuple[int, tuple[int, ...]]
"""An intermediate state: the group, and the tokens so far."""

Continue = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[float | None]]
"""(indices, prefixes) → scores: one continuation of each prefix, for the prompt at its index."""


@dataclass(frozen=True)
class ContinuationSampler:
    """Sampler of continuations, as :data:`Continue`, from data of the scoring phase."""

    prompts: Sequence[Any]
    inputs: Sequence[Any]
    generate: Generate
    rewards_of: RewardsOf

    def __call__(self, indices: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[float | None]:
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


def vine(
    token_rewards: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    prompts: Sequence[Any],
    inputs: Sequence[Any],
    generate: Generate,
    rewards_of: RewardsOf,
    tokenizer: Any,
    log: Log,
    *,
    steps: Steps = "lines",
    continuations: PositiveInt = 9,
    first: PositiveInt | None = None,
    whiten: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """Compute each step's gain in value: the sampled value of the state after it minus that of the state before.

    Âᵢₜ = rₖ + Vₖ₊₁ − Vₖ for every token t of step k: Vₖ is the mean reward of K continuations from the state
    before step k, and 0 after the last. VinePPO, arXiv 2410.01679: K is `continuations`, 9 there.

    rₖ is the sum of the step's token rewards; the last step includes the reward of the completion. Neither a critic nor
    a comparison within groups is needed: a group may have one completion, and equal rewards still have a gradient.
    `steps` defines a step. With `first`, only the first states of a completion are evaluated, including the prompt; the
    step after the last of these includes all later steps. `whiten`: over all trained tokens of the batch, as in the
    authors' settings. A state shared by completions of a group is evaluated once. Logged: `advantage/continuations`,
    their number, and `advantage/shared_states`, the share of states that required none.

    Pitfalls: the cost is (states · K) continuations per generation batch. Continuations are scored by the rewards
    without shapers, unlike the completion itself. They have a single turn, without replies of an environment.

    >>> from rlm_process.step_boundaries import Every
    >>> inputs = dict(prompts=["?"], inputs=[{}], tokenizer=None, log=lambda name, x: None, steps=Every(every=2))
    >>> calls = dict(generate=lambda p, starts: [[9]] * len(p), rewards_of=lambda p, ids, xs: torch.ones(len(ids)))
    >>> vine(torch.tensor([[0.0, 0.0, 0.5]]), torch.ones(1, 3).bool(), torch.zeros(1), [[4, 5, 6]], **inputs, **calls)
    tensor([[ 0.0000,  0.0000, -0.5000]])
    """
    cut = step_cutter(steps, tokenizer, where="advantage: vine.steps")
    ends_of, before = cut_into_states(group.tolist(), completion_ids, cut)
    selected = [states[:first] for states in before]
    scores = sample_continuations(
        selected, ContinuationSampler(prompts, inputs, generate, rewards_of), continuations=continuations
    )
    _log_cost(log, selected, scores, continuations)
    values, token_rewards = mean_values(scores), token_rewards.where(mask, 0.0)
    advantages = torch.zeros_like(token_rewards)
    for index, (states, ends) in enumerate(zip(before, ends_of, strict=True)):
        spans = list(pairwise((0, *ends)))
        step_rewards = [token_rewards[index, a:b].sum().item() for a, b in spans]
        gains = step_advantages(step_rewards, [values.get(state) for state in states])
        for (a, b), gain in zip(spans, gains, strict=True):
            advantages[index, a:b] = gain
    return whiten_over_mask(advantages, mask) if whiten else advantages.where(mask, 0.0)


def _log_cost(
    log: Log, selected: Sequence[Sequence[State]], scores: dict[State, list[float]], continuations: int
) -> None:
    num_states = sum(map(len, selected))
    log("continuations", float(len(scores) * continuations))
    log("shared_states", 1 - len(scores) / max(1, num_states))
    log("steps", num_states / max(1, len(selected)))


def step_advantages(rewards: Sequence[float], values: Sequence[float | None]) -> list[float]:
    """Compute the advantage of each step.

    Âₖ = rₖ + Vₖ₊₁ − Vₖ. VinePPO, arXiv 2410.01679 §4.

    Args:
        rewards: Reward of each step.
        values: Value of the state before each step; 0 after the last. None: unknown. Then it is replaced by the step's
            reward plus the value of the next state; if all later values are unknown, this is the remaining return.

    Returns:
        Advantage of each step.

    >>> step_advantages([0.0, 1.0], [0.25, 0.75])
    [0.5, 0.25]
    >>> step_advantages([0.0, 0.0, 1.0], [0.5, 0.75, None])  # an unknown value gives the last step an advantage of 0
    [0.25, 0.25, 0.0]
    """
    advantages: list[float] = []
    next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        value_before = reward + next_value if value is None else value
        advantages.append(reward + next_value - value_before)
        next_value = value_before
    return advantages[::-1]


def step_label(scores: Sequence[float], *, right: float, soft: bool) -> float | None:
    """Return the label of a step from the scores of its continuations; None without any.

    Hard: true if any is correct; soft: the share that is. Math-Shepherd, arXiv 2312.08935 eq. 3–4.

    >>> step_label([0.0, 1.0, 0.0, 0.0], right=1.0, soft=False), step_label([0.0, 1.0, 0.0, 0.0], right=1.0, soft=True)
    (True, 0.25)
    """
    is_correct = [score >= right for score in scores]
    if not is_correct:
        return None
    return sum(is_correct) / len(is_correct) if soft else any(is_correct)


def step_labels(
    token_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    prompts: Sequence[Any],
    inputs: Sequence[Any],
    generate: Generate,
    rewards_of: RewardsOf,
    tokenizer: Any,
    step: int,
    log: Log,
    *,
    steps: Steps = "lines",
    continuations: PositiveInt = 8,
    soft: bool = False,
    right: float = 1.0,
    weight: float = 1.0,
    save: Path | None = None,
) -> Float[torch.Tensor, "B T"]:
    """Reward each step, on its last token, if a correct answer can still be reached from its end.

    r′ᵢₜ = rᵢₜ + weight · yₖ on the last token t of step k: yₖ is 1 if any of K continuations from the state after
    step k is correct (hard), or the share of them that is (`soft`). For the last step it is 1 if the completion itself
    is correct. Math-Shepherd, arXiv 2312.08935 eq. 3–4; K is `continuations`, 8 there.

    An answer is correct if its reward is at least `right`: the recipe's rewards, before any shaper. With `save`
    every completion is appended to that file, a line of JSON with ``prompt``, ``completions`` (the steps) and
    ``labels`` (true or false, or shares). This is training data for a process reward model (algorithm
    `process_reward_model`), in TRL's stepwise-supervision format; `weight` 0 then only saves. The mean label is logged
    as `shapers/label`, the number of continuations as `shapers/continuations`.

    Pitfalls: a completion of many correct steps gets more than one of few. Add an outcome reward, or compare within
    groups step by step. States that no reward could score have no label (null) and no reward. A resumed run saves
    repeated training steps again (`step` identifies them).

    >>> from rlm_process.step_boundaries import Every
    >>> context = dict(prompts=["?"], inputs=[{}], tokenizer=None, step=0, log=lambda name, x: None)
    >>> short = lambda prompts, ids, inputs: torch.tensor([float(len(completion) < 4) for completion in ids])
    >>> calls = dict(generate=lambda prompts, starts: [[9, 9]] * len(prompts), rewards_of=short, steps=Every(every=2))
    >>> step_labels(torch.zeros(1, 3), torch.tensor([1.0]), [[4, 5, 6]], **context, **calls).tolist()
    [[0.0, 0.0, 1.0]]
    """
    cut = step_cutter(steps, tokenizer, where="shapers: step_labels.steps")
    ends_of, states_before = cut_into_states(group.tolist(), completion_ids, cut)
    states_after = [states[1:] for states in states_before]
    sampler = ContinuationSampler(prompts, inputs, generate, rewards_of)
    scores = sample_continuations(states_after, sampler, continuations=continuations)
    # the last step is labelled by the score of the completion itself
    own_scores = [[] if x is None else [x] for x in sampler.score_answers(range(len(prompts)), completion_ids)]
    labels = [
        [step_label(values, right=right, soft=soft) for values in (*map(scores.__getitem__, states), own_score)]
        for states, own_score in zip(states_after, own_scores, strict=True)
    ]
    rewards = torch.zeros_like(token_rewards)
    known_labels: list[float] = []
    for index, ends in enumerate(ends_of):
        for end, value in zip(ends, labels[index], strict=False):
            rewards[index, end - 1] = weight * (value or 0.0)
            known_labels += [] if value is None else [value]
    log("label", sum(known_labels) / max(1, len(known_labels)))
    log("continuations", float(len(scores) * continuations))
    if save is not None:
        examples = zip(prompts, completion_ids, ends_of, labels, strict=True)
        _append(save, [_record(*example, tokenizer, step) for example in examples])
    return rewards


def _record(
    prompt: Any, ids: Sequence[int], ends: Sequence[int], labels: Sequence[float | None], tokenizer: Any, step: int
) -> dict[str, Any]:
    texts_of_tokens = token_texts(ids, tokenizer)
    texts = ["".join(texts_of_tokens[a:b]) for a, b in pairwise((0, *ends))]
    return {"prompt": prompt, "completions": texts, "labels": list(labels[: len(texts)]), "step": step}


def _append(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Append records to a file, from the main process only."""
    from rlm_plugins.workers.distributed import processes

    if processes().is_main_process:
        make_folder(path.parent)
        for record in records:
            JsonLines(path).append(record)
