"""Signal of the initial policy: the rewards that a training from here would start with. Nothing is trained."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.stage import Stage

TIE = 1e-9
"""Rewards that differ by less are equal."""


@dataclass(frozen=True)
class Group:
    """The completions of one prompt.

    Args:
        rewards: The reward of each completion, weighted and summed.
        named: Each reward by its label; NaN where it did not apply.
        tokens: Trained tokens of each completion.
        is_complete: True for each completion that ended before the length limit.
    """

    rewards: Sequence[float]
    named: dict[str, Sequence[float]]
    tokens: Sequence[int]
    is_complete: Sequence[bool]

    @property
    def has_spread(self) -> bool:
        """True if the completions have different rewards."""
        return max(self.rewards) - min(self.rewards) > TIE


@dataclass
class Signal:
    """Scored groups of the initial policy, and the duration of its steps.

    Args:
        stage: The stage.
        groups: One per prompt.
        seconds: Duration of each optimizer step, with generation and scoring.
    """

    stage: Stage
    groups: list[Group] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the report as plain data; None where there is none."""
        metric = self.stage.evaluation.metric if self.stage.evaluation else self.stage.rewards[0].label
        rewards = list(chain.from_iterable(group.rewards for group in self.groups))
        scores_by_group = [[x for x in group.named[metric] if not math.isnan(x)] for group in self.groups]
        best = [max(scores) for scores in scores_by_group if scores]
        scores = list(chain.from_iterable(scores_by_group))
        tokens = list(chain.from_iterable(group.tokens for group in self.groups))
        is_complete = list(chain.from_iterable(group.is_complete for group in self.groups))
        return {
            "stage": self.stage.name,
            "prompts": len(self.groups),
            "group_size": len(self.groups[0].rewards),
            "reward": fmean(rewards),
            "rewards": {reward.label: self._mean(reward.label) for reward in self.stage.rewards},
            "metric": metric,
            "is_share": {*scores} <= {0.0, 1.0},
            "pass_at_g": fmean(best) if best else None,
            "groups_that_differ": sum(group.has_spread for group in self.groups),
            "groups_without_reward": sum(max(map(abs, group.rewards)) <= TIE for group in self.groups),
            "groups_alike_otherwise": sum(
                len(group.rewards) > 1 and not group.has_spread and max(map(abs, group.rewards)) > TIE
                for group in self.groups
            ),
            "ended": fmean(is_complete),
            "tokens": fmean(tokens),
            "max_tokens": self.stage.settings.get("max_completion_length"),
            # The first step also starts the generator and allocates memory.
            "seconds_per_step": median(self.seconds[1:] or self.seconds) if self.seconds else None,
            "steps": self.stage.settings.get("max_steps", -1),
        }

    def _mean(self, label: str) -> float | None:
        values = [x for group in self.groups for x in group.named[label] if not math.isnan(x)]
        return fmean(values) if values else None


class _AllScored(Exception):
    """Ends the training loop: all prompts are scored."""


class _StepTimer(TrainerCallback):  # type: ignore[misc]
    """Measures the steps, and ends the loop."""

    def __init__(self, signal: Signal, prompts: int) -> None:
        self._signal, self._prompts, self._start = signal, prompts, 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._signal.seconds.append(time.perf_counter() - self._start)
        if len(self._signal.groups) >= self._prompts:
            raise _AllScored


def measure_signal(stage: Stage, prompts: int) -> Signal:
    """Run steps of a stage with learning rate 0 until enough prompts are scored.

    The steps are those of training: rollout sources, multi-turn episodes, filters and rewards take part.

    Args:
        stage: Composed, connected to its earlier stages.
        prompts: Number of prompts to score.

    Raises:
        RlmError: The stage samples no completions, or no completion was scored.
    """
    if stage.equation is None or not stage.rewards:
        raise RlmError(f"stage {stage.name} samples no completions: it has no rewards")
    settings = {**stage.settings, "learning_rate": 0.0, "save_strategy": "no", "report_to": "none", "weight_decay": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        measured = replace(stage, settings=settings, evaluation=None, callbacks=[], folder=Path(folder) / stage.name)
        signal = Signal(stage)

        def observe(step: int, texts: Any, completions: Any, batch: Batch) -> None:
            signal.groups += _groups(batch)

        measured.observer, measured.watchers = observe, [_StepTimer(signal, prompts)]
        with suppress(_AllScored):
            measured.trainer(measured)
    if not signal.groups:
        raise RlmError(f"no completion of stage {stage.name} was scored")
    return signal


def _groups(batch: Batch) -> list[Group]:
    """Return the groups of a scored batch."""
    groups = []
    for number in batch.group.unique().tolist():
        rows = (batch.group == number).nonzero().flatten()
        groups.append(
            Group(
                torch.nan_to_num(batch.rewards[rows]).tolist(),
                {label: values[rows].tolist() for label, values in batch.named_rewards.items()},
                batch.mask[rows].sum(1).tolist(),
                (~batch.truncated[rows]).tolist(),
            )
        )
    return groups
