"""One question to a reward: a completion per row, and what it says of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.dataset import NOT_FOR_REWARDS
from rlm_plugins.reward_probe.cases import Example
from rlm_plugins.rewards.columns import reward_columns
from rlm_plugins.rewards.trl_adapter import call_reward, trl_reward
from rlm_plugins.stage import Reward

Scores = list[float | None]


@dataclass(frozen=True)
class Asked:
    """What a reward said of one batch.

    Args:
        scores: Of each row; empty where it failed.
        seconds: One call.
        error: How it failed.
    """

    scores: Scores
    seconds: float
    error: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """Mean, range, and how many had none."""
        numbers = [x for x in self.scores if x is not None]
        rows = max(len(self.scores), 1)
        return {
            "mean": sum(numbers) / len(numbers) if numbers else None,
            "low": min(numbers, default=None),
            "high": max(numbers, default=None),
            "unscored": len(self.scores) - len(numbers),
            "milliseconds": 1000 * self.seconds / rows,
            **({"error": self.error} if self.error else {}),
        }


def ask(reward: Reward, rows: Sequence[Example], texts: Sequence[str]) -> Asked:
    """What it says of one completion per row."""
    began = time.perf_counter()
    try:
        scores = call_reward(trl_reward(reward), _columns(rows, texts))
    except RlmError as error:
        return Asked([], time.perf_counter() - began, error.problem)
    return Asked(scores, time.perf_counter() - began)


def _columns(rows: Sequence[Example], texts: Sequence[str]) -> dict[str, Any]:
    """Rows as TRL hands them over."""
    chat = not isinstance(rows[0]["prompt"], str)
    said = [[{"role": "assistant", "content": text}] if chat else text for text in texts]
    seen = [{name: x for name, x in row.items() if name not in NOT_FOR_REWARDS} for row in rows]
    nobody: dict[str, Any] = {"trainer_state": None, "log_extra": _ignore, "log_metric": _ignore}
    prompts, ids = [row["prompt"] for row in rows], [list(text.encode()) for text in texts]
    return reward_columns(prompts, said, ids, seen, **nobody, environments=None, episodes=None)


def _ignore(name: str, value: Any) -> None:
    """Nobody reads what a reward notes."""
