"""How often a *sampled* answer is right on held-out sums: what votes change, where greedy decoding votes already.

python -m rlm_intrinsic.measured runs/recipe/01-sft/model [runs/recipe/02-ttrl/adapter …]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rlm_intrinsic.sampling import sampled
from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.rewards import accuracy

SAMPLES, LONGEST = 8, 34


def sampled_accuracy(model: str, adapter: str | None = None) -> tuple[float, float]:
    """Mean over the 256 held-out sums of the recipe, 8 answers each at temperature 1; and the standard error of it.

    Args:
        model: Folder of the model.
        adapter: Folder of the adapter on it; None: the model alone.
    """
    rows = addition(digits=2, train_rows=1).test
    asked = [row["prompt"] for row in rows]
    answers = sampled(model, asked, adapter=adapter, samples=SAMPLES, longest=LONGEST)
    scores = [accuracy(texts, [row["answer"]] * SAMPLES) for texts, row in zip(answers, rows, strict=True)]
    return _mean([sum(score or 0.0 for score in of_row) / SAMPLES for of_row in scores])


def _mean(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    spread = sum((x - mean) ** 2 for x in values) / (len(values) - 1)
    return mean, math.sqrt(spread / len(values))


if __name__ == "__main__":
    for folder in (None, *sys.argv[2:]):
        share, error = sampled_accuracy(sys.argv[1], folder)
        print(f"{folder or 'start'}: {100 * share:.1f} % (standard error {100 * error:.1f})")
