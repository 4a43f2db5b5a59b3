"""Policy losses token by token: value and derivative against the formula, as a table of cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.policy_losses import gradient_preserving

from rlm_plugins.builtin.policy_losses import cispo, clip
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Part

W = st.floats(0.01, 5.0)
A = st.floats(-3.0, 3.0)


def with_derivative(loss: Any, w: float, advantage: float, **knobs: Any) -> tuple[float, float]:
    """Return ℓ and dℓ/dw at one token."""
    ratio = torch.tensor([[w]], dtype=torch.float64, requires_grad=True)
    value = loss(ratio, torch.tensor([[advantage]], dtype=torch.float64), **knobs)
    return value.item(), torch.autograd.grad(value.sum(), ratio)[0].item()


def test_upper_bound_defaults_to_the_lower_one() -> None:
    assert with_derivative(clip, 2.0, 1.0, epsilon=0.3)[0] == pytest.approx(-1.3)
    assert with_derivative(clip, 2.0, 1.0, epsilon=0.3, epsilon_high=0.0)[0] == pytest.approx(-1.0)


@given(W, A, st.floats(0.0, 1.5), st.floats(0.0, 1.5))
def test_a_preserved_gradient_is_bounded_by_its_beta(w: float, advantage: float, below: float, above: float) -> None:
    """dℓ/dlog w = w dℓ/dw is −β (1+ε_high) Â or −β (1−ε) Â outside the clip range, for any w."""
    knobs = {"epsilon": 0.2, "epsilon_high": 0.28, "beta_low": below, "beta_high": above}
    value, slope = with_derivative(gradient_preserving, w, advantage, **knobs)
    if advantage > 0 and w > 1.28:
        pull = -above * 1.28 * advantage
    elif advantage < 0 and w < 0.8:
        pull = -below * 0.8 * advantage
    else:
        pull = -w * advantage
    assert (value, slope * w) == (pytest.approx(pull), pytest.approx(pull))


@given(W, A)
def test_delta_is_dual_clip_with_a_preserved_gradient(w: float, advantage: float) -> None:
    value, slope = with_derivative(gradient_preserving, w, advantage, delta=3.0)
    plain_value, plain_slope = with_derivative(gradient_preserving, w, advantage)
    capped = advantage < 0 and w > 3.0
    assert value == pytest.approx(-3.0 * advantage if capped else plain_value)
    assert slope == (0.0 if capped else pytest.approx(plain_slope))


def test_logged_clip_fraction_is_exact() -> None:
    seen: dict[str, torch.Tensor] = {}
    ratio = torch.tensor([[0.5, 0.5, 1.0, 2.0, 2.0]])
    advantages = torch.tensor([[-1.0, 1.0, 1.0, 1.0, -1.0]])
    clip(ratio, advantages, seen.__setitem__)
    assert seen["clipped_low"].tolist() == [[1, 0, 0, 0, 0]]
    assert seen["clipped_high"].tolist() == [[0, 0, 0, 1, 0]]
    gradient_preserving(ratio, advantages, seen.__setitem__)
    assert (seen["clipped_low"].tolist(), seen["clipped_high"].tolist()) == ([[1, 0, 0, 0, 0]], [[0, 0, 0, 1, 0]])
    cispo(ratio, advantages, torch.zeros(1, 5), seen.__setitem__, epsilon_high=0.5)
    assert seen["capped"].tolist() == [[0, 0, 0, 1, 0]]


@pytest.mark.parametrize("knobs", [{"epsilon": -0.1}, {"epsilon_high": -1.0}, {"delta": 0.0}, {"epsilon": "0.2"}])
def test_knobs_out_of_range_are_rejected(knobs: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(knobs))):
        Part("rlm_policy_losses", "clip", "builtin", clip).bind(knobs)
