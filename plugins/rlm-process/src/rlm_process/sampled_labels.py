"""Labels of steps from sampled continuations: as a reward, and as a data set (hook ``rlm_shapers``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from pydantic import PositiveInt

from rlm_plugins.durable.files import JsonLines, make_folder
from rlm_plugins.equation.batch import Generate, Log, RewardsOf
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.state_values import ContinuationSampler, cut_into_states, sample_continuations
from rlm_process.step_boundaries import step_cutter
from rlm_process.token_texts import token_texts


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

    >>> from rlm_process.knobs import Every
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
    """Return a completion as a line of the data set."""
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
