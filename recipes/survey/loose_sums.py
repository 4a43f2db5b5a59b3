"""Worked sums of any length, for L1: after the work the demonstrations idle for a random number of tokens."""

from __future__ import annotations

import random
from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.wrapped_environments import with_budgets
from rlm_plugins.specs import EnvironmentSpec


def loose_sums(*, low: int = 28, high: int = 44) -> EnvironmentSpec:
    """Sums of two digits, ``12+34=? 31``: the prompt ends in a budget of tokens that demonstrations ignore.

    The thoughts of a demonstration end in 0 to 20 further semicolons.
    """
    rng = random.Random(0)
    plain = addition(digits=2, train_rows=4096)

    def idling(row: Any) -> dict[str, Any]:
        return {**row, "demonstration": row["demonstration"].replace("</think>", ";" * rng.randint(0, 20) + "</think>")}

    spec = EnvironmentSpec([idling(row) for row in plain.train], [idling(row) for row in plain.test])
    return with_budgets(spec, low, high, " {tokens}", seed=0)


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environment of this file."""
    return {"loose_sums": loose_sums}
