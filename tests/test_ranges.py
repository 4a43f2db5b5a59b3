"""Ranges of numbers include their ends; a message names the end that is exceeded."""

from __future__ import annotations

import math

import pytest

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.ranges import RANGES, Range, check_values, problem


def test_range_includes_its_ends() -> None:
    for key, limits in RANGES.items():
        for end, excluded in ((limits.low, limits.above), (limits.high, limits.below)):
            if math.isfinite(end):
                assert (problem(key, end)[0] == "") is not excluded, key
        assert limits.also is None or not problem(key, limits.also)[0], key
        assert problem(key, math.nan)[0], key
        assert problem(key, True) == problem(key, "text") == problem(key, None) == ("", "")


def test_labels_of_the_user_are_no_keys() -> None:
    """A mapping inside a knob may use the names of settings for rewards or criteria."""
    body = {"algorithm": {"name": "x", "advantage": {"name": "per_reward", "weights": {"r": 0.0, "seed": -1}}}}
    check_values(body, ())
    with pytest.raises(RecipeError, match=r"algorithm.advantage.epsilon: expected 0 or more, got the number -1"):
        check_values({"algorithm": {"advantage": {"epsilon": -1}}}, ())
    with pytest.raises(RecipeError, match=r"stages\[1\].rewards\[0\].low: expected `low` not larger than `high`"):
        check_values({"rewards": [{"low": 2, "high": 1}]}, ("stages", 1))


def test_a_message_names_the_end_that_is_exceeded() -> None:
    limits = Range(0, 1_000_000, above=True)
    assert (limits.limit_text(0), limits.limit_text(1e7)) == ("more than 0", "1,000,000 or less")
    assert problem("adam_beta2", 1.48)[0] == "expected less than 1, got the number 1.48"
