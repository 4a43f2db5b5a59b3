"""KL estimators against the divergence that they estimate, summed exactly over a small vocabulary."""

from __future__ import annotations

import math

import pytest
import torch
import trl_formulas
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.entropy_control import kl_cov
from rlm_testing import batches

from rlm_plugins.builtin.penalties import entropy, kl, kl_old
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import with_own_step_batch
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


@given(st.floats(-5.0, 5.0))
def test_value_and_derivative_by_the_formula(d: float) -> None:
    for estimator, value, slope in (
        ("k1", d, 1.0),
        ("k2", d * d / 2, d),
        ("k3", math.exp(-d) + d - 1, 1 - math.exp(-d)),
    ):
        logp = torch.tensor([[-7.0 + d]], dtype=torch.float64, requires_grad=True)
        found = kl(logp, torch.tensor([[-7.0]], dtype=torch.float64), estimator=estimator)
        assert found.item() == pytest.approx(value, abs=1e-9)
        assert torch.autograd.grad(found.sum(), logp)[0].item() == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("d", [-1e4, -50.0, 50.0, 1e4])
def test_k3_of_distant_log_probs_is_finite_without_gradient(d: float) -> None:
    logp = torch.tensor([[d]], requires_grad=True)
    found = kl(logp, torch.zeros(1, 1))
    edge = math.copysign(20.0, d)
    assert found.item() == pytest.approx(math.exp(-edge) + edge - 1)
    assert torch.autograd.grad(found.sum(), logp)[0].item() == 0.0


def test_k3_is_trls_bit_by_bit() -> None:
    for seed in range(20):
        noise = torch.Generator().manual_seed(seed)
        logp, ref = -5 * torch.rand(8, 33, generator=noise), -5 * torch.rand(8, 33, generator=noise)
        assert torch.equal(kl(logp, ref), trl_formulas.per_token_kl(logp, ref))


def test_weighing_by_importance_is_a_product() -> None:
    logp = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    ref, old = torch.tensor([[-2.0, -1.5]]).double(), torch.tensor([[-1.1, -2.3]]).double()
    ratio = (logp - old).exp()
    found = kl(logp, ref, ratio, importance_weighted=True)
    d, w = (logp - ref).detach(), ratio.detach()
    k3 = (-d).exp() + d - 1
    torch.testing.assert_close(found.detach(), w * k3)
    (slope,) = torch.autograd.grad(found.sum(), logp)
    torch.testing.assert_close(slope, w * k3 + w * (1 - (-d).exp()))
    torch.testing.assert_close(kl(logp, ref, ratio).detach(), k3)  # the ratio alone changes nothing


def test_weight_by_a_missing_ratio_is_rejected() -> None:
    with pytest.raises(RecipeError, match="choose an `importance`"):
        kl(torch.zeros(1, 1), torch.zeros(1, 1), importance_weighted=True)


def test_the_old_policy_is_measured_like_the_reference() -> None:
    logp, old = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -0.5]])
    for estimator in ("k1", "k2", "k3"):
        assert torch.equal(kl_old(logp, old, estimator=estimator), kl(logp, old, estimator=estimator))


@given(st.floats(-5.0, 5.0))
def test_straight_through_has_the_gradient_of_k2(d: float) -> None:
    for estimator in ("k1", "k2", "k3", "abs"):
        logp = torch.tensor([[-7.0 + d]], dtype=torch.float64, requires_grad=True)
        ref = torch.tensor([[-7.0]], dtype=torch.float64)
        found = kl(logp, ref, estimator=estimator, straight_through=True)
        assert found.item() == pytest.approx(kl(logp, ref, estimator=estimator).item())
        assert torch.autograd.grad(found.sum(), logp)[0].item() == pytest.approx(d, abs=1e-9)


def test_the_absolute_distance() -> None:
    logp = torch.tensor([[-1.0, -3.0, -2.0]], requires_grad=True)
    found = kl(logp, torch.full((1, 3), -2.0), estimator="abs")
    assert found.tolist() == [[1.0, 1.0, 0.0]]
    assert torch.autograd.grad(found.sum(), logp)[0].tolist() == [[1.0, -1.0, 0.0]]


@given(batches(group_size=6), st.floats(0.05, 0.9))
def test_penalty_applies_to_the_tokens_of_largest_covariance(batch: Batch, share: float) -> None:
    logp, advantages = batch.logp.requires_grad_(), batch.advantages.expand_as(batch.logp)
    actual = kl_cov(
        logp,
        batch.old_logp,
        with_own_step_batch(batch).step_batch,
        with_own_step_batch(batch).step_batch_rows,
        share=share,
    )
    (slope,) = torch.autograd.grad(actual.sum(), logp)
    live = batch.mask.nonzero().tolist()
    means = [sum(x[i, t].item() for i, t in live) / max(1, len(live)) for x in (logp, advantages)]
    shared = {(i, t): (logp[i, t].item() - means[0]) * (advantages[i, t].item() - means[1]) for i, t in live}
    count = max(1, int(share * len(live)))
    paying = sorted(shared, key=lambda p: -shared[p])[:count]
    distance = batch.logp.detach() - batch.old_logp
    for place in shared:
        near = any(math.isclose(shared[place], shared[other], abs_tol=1e-12) for other in paying)
        if (place in paying) != near or shared[place] == 0 or abs(shared[place]) < 1e-12:
            continue  # ties, and rounding where nothing varies
        expected = distance[place].abs().item() if place in paying else 0.0
        assert actual[place].item() == pytest.approx(expected)
        assert slope[place].item() == (distance[place].sign().item() if place in paying else 0.0)


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
