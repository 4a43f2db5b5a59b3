"""Parts of the loss against formulas, loops and TRL, bit by bit: losses, token weights, penalties, aggregators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixtures_equations import equation, part
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.entropy_control import clip_cov, kl_cov
from rlm_algorithms.importance_ratios import truncated_importance, trust_gate
from rlm_algorithms.policy_losses import gradient_preserving
from rlm_testing import batches
from trl import GRPOTrainer

from rlm_plugins.builtin import aggregators, importance, penalties, policy_losses, token_weights
from rlm_plugins.builtin.penalties import kl
from rlm_plugins.builtin.policy_losses import cispo, clip
from rlm_plugins.builtin.token_weights import top_entropy
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import objective, with_own_step_batch
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Part


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


def test_top_entropy_is_trls_mask_bit_by_bit() -> None:
    stub = SimpleNamespace(accelerator=SimpleNamespace(pad_across_processes=lambda x, **_: x, gather=lambda x: x))
    for seed in range(50):
        noise = torch.Generator().manual_seed(seed)
        entropy = torch.rand(8, 33, generator=noise) ** 4 * 3
        mask = torch.arange(33) < torch.randint(0, 34, (8, 1), generator=noise)
        share = (0.2, 0.5, 0.05)[seed % 3]
        theirs = GRPOTrainer.get_high_entropy_mask(stub, entropy, mask.int(), 1 - share)
        window = Batch(entropy=entropy, mask=mask)
        assert torch.equal(top_entropy(window, torch.arange(8), mask, share=share), theirs.float())


def test_equal_or_missing_rollout_logprobs_have_weight_one() -> None:
    old, mask = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
    silent = torch.tensor([[-1.0, torch.nan]])
    for weight in (truncated_importance, trust_gate):
        assert weight(old, silent, mask).tolist() == [[1.0, 1.0]]
        assert weight(old, silent, mask, level="sequence").tolist() == [[1.0]]


def band(batch: Batch, low: float, high: float) -> set[tuple[int, int]]:
    """Return the positions that may be drawn, by definition."""
    live = [(i, t) for i, t in batch.mask.nonzero().tolist()]
    advantages = batch.advantages.expand_as(batch.logp)
    mean_logp = sum(batch.logp[p].item() for p in live) / max(1, len(live))
    mean_advantage = sum(advantages[p].item() for p in live) / max(1, len(live))
    places = set()
    for p in live:
        w, a = batch.ratio.expand_as(batch.logp)[p].item(), advantages[p].item()
        clipped = (a > 0 and w > 1.2) or (a < 0 and w < 0.8)
        if low < (batch.logp[p].item() - mean_logp) * (a - mean_advantage) < high and not clipped:
            places.add(p)
    return places


@given(batches(group_size=6), st.floats(0.05, 1.0))
def test_sampled_tokens_lie_in_the_band_with_the_given_share(batch: Batch, share: float) -> None:
    knobs = {"share": share, "low": 0.05, "high": 2.0, "epsilon": 0.2}
    batch = with_own_step_batch(batch)
    weight = clip_cov(batch.step_batch, batch.step_batch_rows, batch.mask, 0, **knobs)
    drawn = {(i, t) for i, t in (weight == 0).nonzero().tolist()}
    candidates = band(batch, 0.05, 2.0)
    assert drawn <= candidates
    assert len(drawn) == min(len(candidates), max(1, int(share * int(batch.mask.sum()))))


def test_token_sampling_is_deterministic() -> None:
    noise = torch.Generator().manual_seed(0)
    window = Batch(
        logp=-torch.rand(64, 500, generator=noise),
        advantages=torch.randn(64, 1, generator=noise),
        mask=torch.ones(64, 500, dtype=torch.bool),
    )

    def draw(window: Batch, step: int, share: float = 0.05) -> torch.Tensor:
        return clip_cov(window, torch.arange(64), window.mask, step, share=share, low=0.0, high=9.0) == 0

    drawn = draw(window, 3)
    assert torch.equal(drawn, draw(window, 3))
    assert drawn.sum() == 1600
    rounded = replace(window, logp=window.logp - 1e-6 * torch.rand(64, 500, generator=noise))
    assert (drawn & draw(rounded, 3)).sum() > 1590  # rounding moves the band's edge, not the draw
    assert (drawn & draw(window, 4)).sum() < 400  # by chance about a tenth: 16000 candidates
    early = drawn[:, :250].float().mean() / drawn.float().mean()
    assert early == pytest.approx(1.0, abs=0.1)
    unlikely = window.logp < window.logp.median()
    in_band = draw(window, 3, share=1.0)
    shares = [drawn[in_band & half].float().mean().item() for half in (unlikely, ~unlikely)]
    assert shares[0] == pytest.approx(shares[1], rel=0.15)


def test_without_a_ratio_nothing_is_clipped() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    window = Batch(logp=torch.tensor([[-0.1, -4.0, -0.1]]), advantages=torch.tensor([[1.0, -2.0, 1.0]]), mask=mask)
    far = replace(window, ratio=torch.tensor([[9.0, 1.0, 1.0]]))
    weights = [clip_cov(w, torch.tensor([0]), mask, 0, share=1.0).tolist() for w in (window, far)]
    assert weights == [[[0.0, 1.0, 0.0]], [[1.0, 1.0, 0.0]]]


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
    assert [k for k in estimates if kl.warn({}, estimator=k)] == ["k1"]  # type: ignore[attr-defined]


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


def test_zero_covariance_has_zero_penalty() -> None:
    logp, old = torch.tensor([[-1.0, -2.0], [-3.0, -1.5]]), torch.zeros(2, 2)
    mask, rows = torch.ones(2, 2, dtype=torch.bool), torch.arange(2)
    equal = Batch(logp=logp, advantages=torch.zeros(2, 1), mask=mask)
    empty = Batch(logp=logp, advantages=torch.tensor([[1.0], [-1.0]]), mask=~mask)
    assert not kl_cov(logp, old, equal, rows, share=0.5).any()
    assert not kl_cov(logp, old, empty, rows, share=0.5).any()


WEIGHTS: dict[str, Callable[[Batch, int], float]] = {
    "token_mean": lambda batch, n: 1 / batch.num_tokens.item(),
    "sequence_mean": lambda batch, n: 1 / n / batch.num_sequences.item(),
    "sequence_sum": lambda batch, n: 1 / batch.num_sequences.item(),
    "fixed_length": lambda batch, n: 1 / batch.num_sequences.item() / batch.max_completion_length,
    "micro_batch_token_mean": lambda batch, n: 1 / batch.mask.sum().item() / batch.num_micro_batches.item(),
}
"""What a token of a row of n trained tokens weighs."""


def total(name: str, batch: Batch, **knobs: Any) -> torch.Tensor:
    found: torch.Tensor = part("rlm_aggregators", getattr(aggregators, name), **knobs)(batch)
    return found


@pytest.mark.parametrize("name", WEIGHTS)
@given(batch=batches())
def test_every_token_has_the_weight_of_the_formula(name: str, batch: Batch) -> None:
    loss = batch.loss.requires_grad_()
    actual = total(name, batch)
    expected = torch.zeros_like(loss)
    for row, mask in enumerate(batch.mask):
        for t in mask.nonzero():
            expected[row, t] = WEIGHTS[name](batch, int(mask.sum()))
    torch.testing.assert_close(actual, (loss.detach() * expected).sum())
    torch.testing.assert_close(torch.autograd.grad(actual, loss)[0], expected)


@pytest.mark.parametrize("length", [0, -5, 1.5])
def test_invalid_length_is_rejected(length: Any) -> None:
    with pytest.raises(RecipeError, match="length"):
        part("rlm_aggregators", aggregators.fixed_length, length=length)


def random_step(seed: int, rows: int = 8, width: int = 16) -> dict[str, torch.Tensor]:
    """Return a random step in float32 with TRL's integer mask; every completion has a token."""
    noise = torch.Generator().manual_seed(seed)
    logp = -3 * torch.rand(rows, width, generator=noise)
    lengths = torch.randint(1, width + 1, (rows, 1), generator=noise)
    return {
        "logp": logp,
        "old_logp": logp + 0.3 * torch.randn(rows, width, generator=noise),
        "ref_logp": logp + 0.3 * torch.randn(rows, width, generator=noise),
        "advantages": torch.randn(rows, 1, generator=noise),
        "mask": (torch.arange(width) < lengths).int(),
    }


@pytest.mark.parametrize("seed", range(4))
def test_vespo_is_trls_bit_by_bit(seed: int) -> None:
    data = random_step(seed)
    mask = data["mask"].bool()
    logp = data["logp"].clone().requires_grad_()
    ours = policy_losses.vespo(logp, data["old_logp"], data["advantages"], mask, k_negative=2.5)
    weight = GRPOTrainer.get_gamma_weights(
        data["advantages"], (logp - data["old_logp"]).detach(), data["mask"], None, k_neg=2.5
    )
    expected = -weight * data["advantages"] * logp
    assert torch.equal(ours[mask], expected[mask])
    (gradient,) = torch.autograd.grad(ours[mask].sum(), logp)
    assert torch.equal(gradient[mask], (-weight * data["advantages"]).expand_as(logp)[mask])
    assert weight.max() > 2 * weight.min(), "the weights differ"


@pytest.mark.parametrize("engine", [False, True])
def test_the_off_policy_mask_is_trls(engine: bool) -> None:
    dropped: list[int] = []
    for seed in range(4):
        data = random_step(seed)
        sampler = data["ref_logp"].clone() if engine else data["old_logp"]
        if engine:
            sampler[0, 0] = torch.nan  # the engine could not score it
        expected = GRPOTrainer.get_off_policy_mask(data["advantages"], data["logp"], sampler, data["mask"], 0.01)
        ours = token_weights.off_policy_mask(
            data["logp"], data["old_logp"], data["advantages"], data["mask"].bool(), sampler if engine else None,
            threshold=0.01,
        )  # fmt: skip
        assert torch.equal(ours, expected.to(ours.dtype))
        dropped.append(int((ours == 0).sum()))
    assert 0 < sum(dropped) < 16


def test_a_penalty_with_an_aggregator_of_its_own() -> None:
    """Its token mean is added to the total, for any aggregator of the loss."""
    mean = part("rlm_aggregators", aggregators.micro_batch_token_mean)
    bonus = replace(part("rlm_penalties", penalties.entropy), options={"beta": 0.5, "aggregator": mean})
    data = random_step(1)
    entropy = data["old_logp"].abs().requires_grad_()
    mask = data["mask"].bool()
    batch = Batch(
        **data | {"mask": mask, "entropy": entropy, "group": torch.zeros(8).long(), "step": 0},
        num_sequences=torch.tensor(16.0),
        num_micro_batches=torch.tensor(2.0),
    )
    slots = {
        "importance": part("rlm_importance", importance.token),
        "policy_loss": part("rlm_policy_losses", policy_losses.clip),
        "aggregator": part("rlm_aggregators", aggregators.sequence_mean),
    }
    without = objective(batch, equation(**slots))
    total = objective(batch, equation(**slots, penalties=[bonus]))
    assert total.item() == pytest.approx((without - 0.5 * entropy[mask].mean() / 2).item(), abs=1e-6)
    (gradient,) = torch.autograd.grad(total, entropy)
    assert torch.allclose(gradient, -0.5 * mask / mask.sum() / 2)
    assert equation(**slots, penalties=[bonus]).requires("num_micro_batches"), "micro-batches stay as they are"
