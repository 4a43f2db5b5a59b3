"""Ranges of settings: a value outside is refused with its address, and the ends belong to the range."""

from __future__ import annotations

from typing import Any

import pytest

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.trainer_settings import check

OUTSIDE: list[tuple[dict[str, Any], str]] = [
    ({"max_steps": 0}, "max_steps: expected 1 or more or -1, got the number 0"),
    ({"temperature": 101}, "temperature: expected 100 or less, got the number 101"),
    ({"top_p": 0}, "top_p: expected more than 0, got the number 0"),
    ({"seed": 2**32}, "seed: expected less than 4294967296, got the number 4294967296"),
    ({"adam_beta2": 1.48}, "adam_beta2: expected less than 1, got the number 1.48"),
    ({"adam_beta1": float("nan")}, "adam_beta1: expected a finite number, got the number nan"),
]


@pytest.mark.parametrize(("values", "words"), OUTSIDE, ids=[str(values) for values, _ in OUTSIDE])
def test_a_value_outside_its_range_is_refused(values: dict[str, Any], words: str) -> None:
    from trl import GRPOConfig

    with pytest.raises(RecipeError, match=words):
        check(GRPOConfig, values, "trainer")


def test_a_range_includes_its_ends() -> None:
    from trl import GRPOConfig

    ends = {"max_steps": -1, "temperature": 100, "top_p": 1, "seed": 2**32 - 1, "learning_rate": 0}
    config = check(GRPOConfig, ends, "trainer", project_defaults={"use_cpu": True, "bf16": False})
    assert {key: getattr(config, key) for key in ends} == ends
