"""A lesson that trains within seconds: demonstrations for one step, then an algorithm."""

from __future__ import annotations

from typing import Any

import yaml


def lesson(algorithm: str, **trainer: Any) -> str:
    """Return the recipe of a lesson as YAML.

    Args:
        algorithm: The row.
        **trainer: Of its stage, beside what keeps it small.
    """
    first: dict[str, Any] = {"max_steps": 1, "per_device_train_batch_size": 4, "save_strategy": "no"}
    then = {"per_device_train_batch_size": 8, "max_completion_length": 4}
    small = {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 16}
    return yaml.safe_dump(
        {
            "environment": {"name": "addition", "digits": 2, "train_rows": 32, "test_rows": 4},
            "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
            "evaluation": {"metric": "accuracy", "every": 1, "batch_size": 4, "max_new_tokens": 4},
            "stages": [
                {"name": "sft", "model": {"name": "scratch", **small}, "algorithm": "sft", "trainer": first},
                {
                    "name": "row",
                    "model": {"lora": {"r": 2, "target_modules": "all-linear"}},
                    "algorithm": algorithm,
                    "trainer": {**then, **trainer},
                },
            ],
        },
        sort_keys=False,
    )
