"""A reward that was written for another library, called with two answers of a chat."""

from __future__ import annotations

from typing import Any

from rlm_plugins.registry import Registry
from rlm_plugins.rewards.trl_adapter import compute_scores, trl_reward
from rlm_plugins.stage import Reward

COLUMNS: dict[str, Any] = {
    "prompts": [[{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]] * 2,
    "completions": [[{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": "five"}]],
    "completion_ids": [[1], [2]],
}


def chats(*texts: str) -> list[list[dict[str, str]]]:
    """Return completions of one assistant message each."""
    return [[{"role": "assistant", "content": text}] for text in texts]


def scores_of(name: str, knobs: dict[str, Any], **columns: Any) -> tuple[list[float | None], dict[str, float]]:
    """Return the scores of a registered reward for the two completions or those in `columns`, and its logged values."""
    logged: dict[str, float] = {}
    bound = Registry().find("rlm_rewards", name).bind(knobs)
    given = {**COLUMNS, "log_metric": logged.__setitem__, **columns}
    return compute_scores(trl_reward(Reward(name, bound)), given), logged
