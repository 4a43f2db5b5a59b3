"""How good a model is: greedy answers to held-out problems, scored by the recipe's own rewards."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlm_plugins.distributed import processes
from rlm_plugins.evaluation.greedy import Answers, answer
from rlm_plugins.recipe.checks.dataset import NOT_FOR_REWARDS
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, Stateful
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.fault_log import agree
from rlm_plugins.rewards.trl_adapter import answered, columns_of, introduce, text_of, trl_reward
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward, Stage

Z95 = 1.959964


@dataclass(frozen=True)
class Report:
    """The score of a model on held-out rows.

    Args:
        score: Mean of the metric; with 0/1 rewards this is the accuracy.
        low: Lower end of the 95 % interval.
        high: Upper end.
        rows: Held-out rows that were scored.
        rewards: Mean of every reward.
        samples: Prompt, completion and rewards of each row.
        share: Whether every score was 0 or 1, so that their mean is a share of the rows.
    """

    score: float
    low: float
    high: float
    rows: int
    rewards: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]]
    share: bool = True

    def told(self, value: float) -> str:
        """A score of this kind for a person: a percentage only where it is a share of something."""
        return f"{value:.1%}" if self.share else f"{value:.3g}"


def judged(stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any, tokenizer: Any) -> Report:
    """The model of a stage, judged as the stage says: by its answers, or as its engine does."""
    how, settings = stage.evaluation, stage.settings
    assert how is not None
    if isinstance(stage.engine, Evaluates):
        return stage.engine.evaluate(stage, rows, model)
    introduce((reward.part for reward in stage.rewards), model, stage.results, tokenizer)
    return evaluate(
        model,
        tokenizer,
        rows,
        stage.rewards,
        metric=how.metric,
        batch_size=how.batch_size,
        max_new_tokens=settings.get("max_completion_length") or how.max_new_tokens,
        chat_template_kwargs=settings.get("chat_template_kwargs"),
        environment_spec=stage.environment_spec,
        generator=stage.generator,
    )


def evaluate(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    rewards: Sequence[Reward],
    *,
    metric: str,
    batch_size: int,
    max_new_tokens: int,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    environment_spec: EnvironmentSpec | None = None,
    generator: Bound | None = None,
) -> Report:
    """Answers every row greedily and scores it; under several processes each answers its share.

    Args:
        model: A causal language model; its mode is restored afterwards and no random number is drawn.
            A reward with a memory forgets what it saw here: judging a model changes nothing of its training.
        tokenizer: Its tokenizer, padding on the left.
        rows: Held-out rows with a ``prompt``.
        rewards: What to score with.
        metric: Label of the reward that is the score.
        batch_size: Rows generated at once.
        max_new_tokens: Longest answer, in tokens.
        chat_template_kwargs: As in GRPOConfig.
        world: Where it answers, every row is an episode in it, played as in training.
        generator: How the model writes; None: as transformers does it.

    Raises:
        Fault: A reward failed that stops the run; on every process.
    """
    from accelerate.utils import gather_object

    state = processes()
    mine = list(rows)[state.process_index :: state.num_processes]
    samples: list[dict[str, Any]] = []
    fault: Fault | None = None
    with _memory_kept(rewards):
        for start in range(0, len(mine), batch_size):
            share = mine[start : start + batch_size]
            answers = answer(
                model, tokenizer, share, max_new_tokens, chat_template_kwargs or {}, environment_spec, generator
            )
            try:
                samples += _scored(answers, share, rewards) if fault is None else []
            except Fault as error:
                fault = error
    agree(fault)
    samples = gather_object(samples) if state.num_processes > 1 else samples
    scores = {r.label: [s["rewards"][r.label] for s in samples if s["rewards"][r.label] is not None] for r in rewards}
    low, high = interval(scores[metric])
    means = {label: sum(x) / len(x) if x else math.nan for label, x in scores.items()}
    of_zeros_and_ones = set(scores[metric]) <= {0.0, 1.0}
    return Report(means[metric], low, high, len(samples), means, samples, of_zeros_and_ones)


@contextmanager
def _memory_kept(rewards: Sequence[Reward]) -> Iterator[None]:
    parts: list[Any] = [reward.part.target for reward in rewards if isinstance(reward.part.target, Stateful)]
    memories = [copy.deepcopy(part.state_dict()) for part in parts]
    try:
        yield
    finally:
        for part, memory in zip(parts, memories, strict=True):
            part.load_state_dict(memory)


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean: Wilson's for scores of 0 and 1, Student-free normal for others.

    Wilson, JASA 1927: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    >>> [round(x, 3) for x in interval([1.0] * 8 + [0.0] * 2)]
    [0.49, 0.943]
    """
    n = len(scores)
    if n == 0:
        return math.nan, math.nan
    mean = sum(scores) / n
    if set(scores) <= {0.0, 1.0}:
        centre, spread = mean + Z95**2 / (2 * n), Z95 * math.sqrt(mean * (1 - mean) / n + Z95**2 / (4 * n * n))
        return (centre - spread) / (1 + Z95**2 / n), (centre + spread) / (1 + Z95**2 / n)
    error = math.sqrt(sum((x - mean) ** 2 for x in scores) / max(n - 1, 1) / n)
    return mean - Z95 * error, mean + Z95 * error


def _scored(answers: Answers, rows: Sequence[Mapping[str, Any]], rewards: Sequence[Reward]) -> list[dict[str, Any]]:
    seen = [{name: x for name, x in row.items() if name not in NOT_FOR_REWARDS} for row in rows]
    nobody: dict[str, Any] = {"trainer_state": None, "log_extra": _ignore, "log_metric": _ignore}
    given = columns_of(answers.prompts, answers.completions, answers.completion_ids, seen, **answers.columns, **nobody)
    scores = {reward.label: answered(trl_reward(reward), given) for reward in rewards}
    return [
        {
            "prompt": text_of(answers.prompts[i]),
            "completion": answers.shown[i],
            "rewards": {label: scores[label][i] for label in scores},
            "tokens": len(answers.completion_ids[i]),
        }
        for i in range(len(rows))
    ]


def _ignore(*_: Any) -> None:
    """A log nobody reads: evaluation reports through its own means."""
