"""r for the length of a completion, in tokens; to be combined with a reward for correctness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rlm_plugins.errors import PartError

Slope = Annotated[float, Field(ge=0)]


def l1_exact(
    completion_ids: Sequence[Sequence[int]], target_length: Sequence[object], *, alpha: Slope = 3e-4
) -> list[float | None]:
    """Penalty for the distance to the length that the prompt requests (L1-Exact).

    r = −α |n_gold − n|, n_gold the data set's column `target_length`, in tokens. L1-Exact, arXiv 2503.04697, is
    this reward beside `accuracy`, both of weight 1; there n_gold is drawn from 100 … 4000, and the prompt ends in
    "Think for n_gold tokens". A completion without a target (None, NaN) is not scored: None.

    >>> l1_exact([[1, 2, 3], [1]], [1, None], alpha=0.25)
    [-0.5, None]
    """
    return [
        None if target is None else -alpha * abs(target - len(ids))
        for ids, target in zip(completion_ids, _targets(target_length), strict=True)
    ]


def l1_max(
    completion_ids: Sequence[Sequence[int]], target_length: Sequence[object], *, alpha: Slope = 3e-4
) -> list[float | None]:
    """Reward for staying below the length that the prompt allows: ½ at the limit, more below, 0 far above (L1-Max).

    r = clip(α (n_gold − n) + ½, 0, 1), n_gold the data set's column `target_length`, in tokens. L1-Max, arXiv
    2503.04697, multiplies it by correctness: the shaper `{name: product, of: [accuracy, l1_max]}`. The released code
    adds it (no shaper) with half the slope (`alpha: 1.5e-4`). A completion without a target is not scored.

    >>> l1_max([[1, 2, 3], [1], [1]], [2, 2, None], alpha=0.25)
    [0.25, 0.75, None]
    """
    return [
        None if target is None else min(max(alpha * (target - len(ids)) + 0.5, 0.0), 1.0)
        for ids, target in zip(completion_ids, _targets(target_length), strict=True)
    ]


def _targets(column: Sequence[object]) -> list[float | None]:
    """Return the column as numbers, None where it is empty."""
    return [_target(value, row) for row, value in enumerate(column)]


def _target(value: object, row: int) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise PartError(
            f"sample {row}: expected a number in the column target_length, got {value!r}", allowed="tokens, or None"
        )
    return float(value)
