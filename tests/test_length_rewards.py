"""Rewards for a target length, alone and as the shaped rewards of L1."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.length_control import l1_exact, l1_max

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.part import Part

lengths = st.integers(0, 5000)


@given(lengths, lengths, st.sampled_from([0.0, 3e-4, 0.1]))
def test_exact_costs_every_token_too_many_or_too_few(wanted: int, written: int, alpha: float) -> None:
    (found,) = l1_exact([[0] * written], [wanted], alpha=alpha)
    assert found == pytest.approx(-alpha * max(wanted - written, written - wanted))


@given(lengths, lengths)
def test_max_is_a_ramp_through_one_half_at_the_limit(wanted: int, written: int) -> None:
    (found,) = l1_max([[0] * written], [wanted])
    if abs(wanted - written) * 3e-4 >= 0.5:
        assert found == (1.0 if wanted > written else 0.0)
    else:
        assert found == pytest.approx(0.5 + 3e-4 * (wanted - written))


def test_completions_without_a_target_are_not_scored() -> None:
    for reward in (l1_exact, l1_max):
        assert reward([[1], [1]], [None, math.nan]) == [None, None]


@pytest.mark.parametrize("odd", ["100", -1, math.inf, True, [100]])
def test_a_target_that_is_no_number_of_tokens_is_named(odd: object) -> None:
    for reward in (l1_exact, l1_max):
        with pytest.raises(PartError, match="sample 1: expected a number in the column target_length"):
            reward([[1], [1]], [1, odd])


@pytest.mark.parametrize("reward", [l1_exact, l1_max])
def test_negative_slope_is_rejected(reward: Any) -> None:
    with pytest.raises(RecipeError, match="alpha"):
        Part("rlm_rewards", reward.__name__, "builtin", reward).bind({"alpha": -1e-4})
