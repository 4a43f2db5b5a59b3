"""One call of a reward: a completion per example, and the scores."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.rewards.columns import as_messages, example_data
from rlm_plugins.rewards.trl_adapter import compute_scores, trl_reward
from rlm_plugins.stage import Reward

Example = Mapping[str, Any]
Scores = list[float | None]


@dataclass(frozen=True)
class RewardCall:
    """The result of one call.

    Args:
        scores: One per example; empty if the reward failed.
        seconds: Duration of the call.
        error: Message of the failure.
    """

    scores: Scores
    seconds: float
    error: str = ""

    @property
    def summary(self) -> dict[str, Any]:
        """Mean, range, number of missing scores, and milliseconds per example."""
        numbers = [x for x in self.scores if x is not None]
        examples = max(len(self.scores), 1)
        return {
            "mean": sum(numbers) / len(numbers) if numbers else None,
            "low": min(numbers, default=None),
            "high": max(numbers, default=None),
            "unscored": len(self.scores) - len(numbers),
            "milliseconds": 1000 * self.seconds / examples,
            **({"error": self.error} if self.error else {}),
        }


def call_reward(reward: Reward, examples: Sequence[Example], texts: Sequence[str]) -> RewardCall:
    """Score one completion per example."""
    start = time.perf_counter()
    try:
        scores = compute_scores(trl_reward(reward), _columns(examples, texts))
    except RlmError as error:
        message = "; ".join(filter(None, (error.problem, error.hint)))
        return RewardCall([], time.perf_counter() - start, message)
    return RewardCall(scores, time.perf_counter() - start)


def _columns(examples: Sequence[Example], texts: Sequence[str]) -> dict[str, Any]:
    is_chat = not isinstance(examples[0]["prompt"], str)
    ids = [list(text.encode()) for text in texts]
    completions: Sequence[Any] = as_messages(texts) if is_chat else texts
    return example_data(examples, completions, ids, environments=None, episodes=None)
