"""Score of a model on held-out examples, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.evaluation.estimators import Z95, share_interval


@dataclass(frozen=True)
class Report:
    """The score of a model on held-out examples.

    Args:
        score: Mean of the metric; the accuracy if all rewards are 0 or 1.
        low: Lower end of the 95 % interval.
        high: Upper end.
        rows: Number of scored examples.
        rewards: Mean of every reward.
        samples: Index of the example, prompt, completion and rewards of each, in the order of the examples.
        share: True if every score is 0 or 1, so that their mean is a share.
    """

    score: float
    low: float
    high: float
    rows: int
    rewards: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]]
    share: bool = True

    def text_of(self, value: float) -> str:
        """Return a score as text: as a percentage if it is a share."""
        return score_text(value, share=self.share)


def score_text(value: float, *, share: bool) -> str:
    """Return a score as text: as a percentage if it is a share."""
    return f"{value:.1%}" if share else f"{value:.3g}"


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean: Wilson's for scores of 0 and 1, the normal one for others.

    Wilson, JASA 1927: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    >>> [round(x, 3) for x in interval([1.0] * 8 + [0.0] * 2)]
    [0.49, 0.943]
    """
    if not scores or set(scores) <= {0.0, 1.0}:
        return share_interval(scores)
    n, mean = len(scores), sum(scores) / len(scores)
    error = math.sqrt(sum((x - mean) ** 2 for x in scores) / max(n - 1, 1) / n)
    return mean - Z95 * error, mean + Z95 * error
