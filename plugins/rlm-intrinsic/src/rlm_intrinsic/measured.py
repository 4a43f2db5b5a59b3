"""Accuracy of *sampled* answers on held-out sums: greedy decoding is close to a majority vote already.

python -m rlm_intrinsic.measured runs/recipe/01-sft/model [runs/recipe/02-ttrl/adapter …]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rlm_intrinsic.sampling import sample_completions
from rlm_plugins.builtin.environments import addition
from rlm_plugins.builtin.rewards import accuracy

SAMPLES, MAX_NEW_TOKENS = 8, 34


def sampled_accuracy(model: str, adapter: str | None = None) -> tuple[float, float]:
    """Return mean and standard error over the recipe's 256 held-out sums, with 8 answers each at temperature 1.

    Args:
        model: Folder of the model.
        adapter: Folder of its adapter; None: the model alone.
    """
    examples = addition(digits=2, train_rows=1).test
    prompts = [example["prompt"] for example in examples]
    answers = sample_completions(model, prompts, adapter=adapter, samples=SAMPLES, longest=MAX_NEW_TOKENS)
    scores = [accuracy(texts, [example["answer"]] * SAMPLES) for texts, example in zip(answers, examples, strict=True)]
    return _mean([sum(score or 0.0 for score in example_scores) / SAMPLES for example_scores in scores])


def _mean(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    spread = sum((x - mean) ** 2 for x in values) / (len(values) - 1)
    return mean, math.sqrt(spread / len(values))


if __name__ == "__main__":
    for folder in (None, *sys.argv[2:]):
        share, error = sampled_accuracy(sys.argv[1], folder)
        print(f"{folder or 'start'}: {100 * share:.1f} % (standard error {100 * error:.1f})")
