"""KL estimators against the divergence that they estimate, summed exactly over a small vocabulary."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.entropy_control import kl_cov

from rlm_plugins.builtin.penalties import entropy, kl, kl_old
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError

LOGITS = st.lists(st.floats(-2.0, 2.0), min_size=5, max_size=5)


def policies(pi: list[float], ref: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probs of all five tokens as one sequence, (1, 5)."""
    return tuple(torch.tensor([logits], dtype=torch.float64).log_softmax(-1) for logits in (pi, ref))  # type: ignore


@given(LOGITS, LOGITS)
def test_k1_and_k3_are_unbiased(pi: list[float], ref: list[float]) -> None:
    """Σ π(y) k(y) over the whole vocabulary is the divergence itself."""
    logp, ref_logp = policies(pi, ref)
    divergence = (logp.exp() * (logp - ref_logp)).sum()
    for estimator in ("k1", "k3"):
        torch.testing.assert_close((logp.exp() * kl(logp, ref_logp, estimator=estimator)).sum(), divergence)


@given(LOGITS, LOGITS)
def test_gradient_of_k2_is_unbiased(pi: list[float], ref: list[float]) -> None:
    """E[∇ k2] = ∇ KL(π, ref), which neither k1 (zero) nor k3 (∇ KL(ref, π)) has."""
    logits = torch.tensor([pi], dtype=torch.float64, requires_grad=True)
    logp, ref_logp = logits.log_softmax(-1), policies(pi, ref)[1]
    sampled = logp.exp().detach()

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(x, logits, retain_graph=True)[0]

    forward = gradient((logp.exp() * (logp - ref_logp)).sum())
    backward = gradient((ref_logp.exp() * (ref_logp - logp)).sum())
    estimates = {k: gradient((sampled * kl(logp, ref_logp, estimator=k)).sum()) for k in ("k1", "k2", "k3")}
    torch.testing.assert_close(estimates["k2"], forward)
    torch.testing.assert_close(estimates["k3"], backward)
    torch.testing.assert_close(estimates["k1"], torch.zeros_like(forward))


@pytest.mark.parametrize("d", [-1e4, -50.0, 50.0, 1e4])
def test_k3_of_distant_log_probs_is_finite_without_gradient(d: float) -> None:
    logp = torch.tensor([[d]], requires_grad=True)
    found = kl(logp, torch.zeros(1, 1))
    edge = math.copysign(20.0, d)
    assert found.item() == pytest.approx(math.exp(-edge) + edge - 1)
    assert torch.autograd.grad(found.sum(), logp)[0].item() == 0.0


def test_weight_by_a_missing_ratio_is_rejected() -> None:
    with pytest.raises(RecipeError, match="choose an `importance`"):
        kl(torch.zeros(1, 1), torch.zeros(1, 1), importance_weighted=True)


def test_the_old_policy_is_measured_like_the_reference() -> None:
    logp, old = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -0.5]])
    for estimator in ("k1", "k2", "k3"):
        assert torch.equal(kl_old(logp, old, estimator=estimator), kl(logp, old, estimator=estimator))


def test_zero_covariance_has_zero_penalty() -> None:
    logp, old = torch.tensor([[-1.0, -2.0], [-3.0, -1.5]]), torch.zeros(2, 2)
    mask, rows = torch.ones(2, 2, dtype=torch.bool), torch.arange(2)
    equal = Batch(logp=logp, advantages=torch.zeros(2, 1), mask=mask)
    empty = Batch(logp=logp, advantages=torch.tensor([[1.0], [-1.0]]), mask=~mask)
    assert not kl_cov(logp, old, equal, rows, share=0.5).any()
    assert not kl_cov(logp, old, empty, rows, share=0.5).any()


def test_entropy_penalty_is_negative() -> None:
    h = torch.tensor([[0.5, 2.0]], requires_grad=True)
    assert entropy(h).tolist() == [[-0.5, -2.0]]
    assert torch.autograd.grad(entropy(h).sum(), h)[0].tolist() == [[-1.0, -1.0]]
