"""Worked sums of any length, for L1: after the work the demonstrations idle for a random number of tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from statistics import correlation
from typing import Any

from rlm_algorithms.wrapped_environments import with_budgets

from rlm_plugins import hookimpl
from rlm_plugins.builtin.environments import addition
from rlm_plugins.specs import EnvironmentSpec


def loose_sums(
    *, low: int = 28, high: int = 44, step: int = 8, follows: float = 0.25, seed: int = 0
) -> EnvironmentSpec:
    """Return sums of two digits, ``12+34=? 36``: prompts end in a token budget that most demonstrations ignore.

    The budgets are `low`, `low` + `step`, … up to `high`. The thoughts of a demonstration end in 0 to 20 further
    semicolons; the share `follows` of the demonstrations has as many as the budget requires.
    """
    rng = random.Random(seed)
    plain = with_budgets(addition(digits=2, train_rows=4096, seed=seed), range(low, high + 1, step), " {tokens}", seed)

    def idling(row: Any) -> dict[str, Any]:
        text = row["demonstration"]
        used = len(re.sub("<.*?>", " ", text)) + 1  # a tag is one token; the end token
        idle = row["target_length"] - used if rng.random() < follows else rng.randint(0, 20)
        return {**row, "demonstration": text.replace("</think>", ";" * idle + "</think>")}

    return EnvironmentSpec([idling(row) for row in plain.train], plain.test)


def budget_read(
    completion_ids: Sequence[Sequence[int]], target_length: Sequence[int], log_metric: Callable[[str, float], None]
) -> list[float]:
    """Log the correlation of length and budget over the batch as ``budget_read/correlation``; every score is 0."""
    lengths = [float(len(ids)) for ids in completion_ids]
    if len(set(lengths)) > 1 and len(set(target_length)) > 1:
        log_metric("budget_read/correlation", correlation(lengths, [float(target) for target in target_length]))
    return [0.0] * len(lengths)


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the reward of this file."""
    return {"budget_read": budget_read}


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environment of this file."""
    return {"loose_sums": loose_sums}
