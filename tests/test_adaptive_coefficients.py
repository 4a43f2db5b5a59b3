"""Adaptive coefficients, each against its rule written as a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_equations import part
from fixtures_trainer import clipped, interrupted, trainer
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.adaptive_kl import AdaptiveKL, AdaptiveKLInReward
from rlm_testing import batches
from trl import GRPOConfig, GRPOTrainer

from rlm_plugins.builtin.penalties import AdaptiveEntropy, entropy, kl
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.trainer import EquationTrainer


def measured(batch: Batch, unit: str) -> float | None:
    """Compute the KL by its definition, token by token."""
    rows = []
    for i, live in enumerate(batch.mask.tolist()):
        gaps = [(batch.old_logp[i, t] - batch.ref_logp[i, t]).item() for t, on in enumerate(live) if on]
        rows += [gaps] if gaps else []
    if not rows:
        return None
    return sum(map(sum, rows)) / (len(rows) if unit == "sequence" else sum(map(len, rows)))


# ---- KL


@given(st.lists(batches(), min_size=1, max_size=4), st.floats(0.05, 3.0), st.sampled_from(["sequence", "token"]))
def test_the_factor_follows_ziegler(generations: list[Batch], target: float, unit: Any) -> None:
    parts = [AdaptiveKL(target=target, unit=unit), AdaptiveKLInReward(target=target, unit=unit)]
    expected = 1.0
    for batch in generations:
        for adaptive in parts:
            adaptive.update(batch.old_logp, batch.ref_logp, batch.mask)
        if (actual := measured(batch, unit)) is not None:
            expected *= 1 + 0.1 * max(-0.2, min(0.2, actual / target - 1))
    assert [adaptive.factor for adaptive in parts] == pytest.approx([expected] * 2, rel=1e-9)


def test_horizon_scales_the_gain_by_its_share_of_completions() -> None:
    """lm-human-preferences: β ← β (1 + e · n / horizon)."""
    old, ref, mask = torch.zeros(4, 2), torch.full((4, 2), -9.0), torch.ones(4, 2, dtype=torch.bool)
    adaptive = AdaptiveKL(target=1.0, horizon=100.0)
    adaptive.update(old, ref, mask)
    assert adaptive.factor == pytest.approx(1 + 0.2 * 4 / 100)
    mask[0] = False
    adaptive.update(old, ref, mask)
    assert adaptive.factor == pytest.approx((1 + 0.2 * 4 / 100) * (1 + 0.2 * 3 / 100))


@given(batches(), st.sampled_from(["k1", "k2", "k3"]))
def test_penalty_is_the_factor_times_kl(batch: Batch, estimator: Any) -> None:
    adaptive = AdaptiveKL(target=1.0, estimator=estimator)
    adaptive.factor = 1.5
    logp = batch.logp.requires_grad_()
    found, fixed = adaptive(logp, batch.ref_logp), kl(logp, batch.ref_logp, estimator=estimator)
    torch.testing.assert_close(found, 1.5 * fixed)
    slopes = [torch.autograd.grad(x.sum(), logp, retain_graph=True)[0] for x in (found, 1.5 * fixed)]
    torch.testing.assert_close(slopes[0], slopes[1])


# ---- entropy


@given(st.lists(st.floats(0, 0.6), max_size=30), st.floats(0, 0.1))
def test_the_coefficient_follows_its_rule(seen: list[float], start: float) -> None:
    adaptive, c = AdaptiveEntropy(target=0.3, delta=0.02, start=start, maximum=0.1), start
    one, mask = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    for value in seen:
        adaptive.update(one * value, mask)
        c = min(c + 0.02, 0.1) if value <= 0.3 else max(c - 0.02, 0.0)
        assert adaptive.coefficient == c
        assert adaptive(one).item() == (-c if value <= 0.3 else 0.0)


@pytest.mark.slow
def test_the_coefficient_is_trls(tmp_path: Path) -> None:
    """Stock TRL on a tiny model logs the same entropy and coefficient at every step."""
    target = 3.0
    rule = {"use_adaptive_entropy": True, "entropy_target": target, "entropy_coef_delta": 0.01, "entropy_coef": 0.02}
    stock = GRPOTrainer(
        model=tiny.model(),
        args=GRPOConfig(**tiny.settings(output_dir=str(tmp_path), max_steps=12, learning_rate=3e-2, **rule)),
        reward_funcs=[lambda completions, **_: [float(len(text)) for text in completions]],
        train_dataset=tiny.problems(),
        processing_class=tiny.tokenizer(),
    )
    stock.train()
    logs = [line for line in stock.state.log_history if "entropy_coef" in line]
    adaptive = AdaptiveEntropy(target=target, delta=0.01, start=0.02)
    for line in logs:
        adaptive.update(torch.tensor([[line["entropy"]]], dtype=torch.float64), torch.tensor([[True]]))
        assert adaptive.coefficient == pytest.approx(line["entropy_coef"])
    assert len({line["entropy"] <= target for line in logs}) == 2, "it was never above, or never below"


@given(batches())
def test_the_bonus(batch: Batch) -> None:
    adaptive = AdaptiveEntropy(target=99.0, delta=0.25)
    h = batch.entropy.requires_grad_()
    assert not adaptive(h).any(), "nothing is paid before anything was measured"
    adaptive.update(batch.entropy, batch.mask)
    due = 0.25 if batch.mask.any() else 0.0
    torch.testing.assert_close(adaptive(h), due * entropy(h))
    (slope,) = torch.autograd.grad(adaptive(h).sum(), h)
    assert torch.equal(slope, torch.full_like(h, -due))


def test_bounds_that_contradict_each_other() -> None:
    with pytest.raises(RecipeError, match=r"expected minimum ≤ start ≤ maximum, got 0\.0, 0\.5, 0\.1"):
        part("rlm_penalties", AdaptiveEntropy, start=0.5, maximum=0.1)


# ---- in the equation


# ---- in a run


def adapting(folder: Path) -> EquationTrainer:
    """Return a trainer with three adaptive parts, measured on every generation; only sampling is random."""
    in_reward = Part("rlm_shapers", "adaptive_kl_in_reward", "test", AdaptiveKLInReward)
    undecided = Part("rlm_penalties", "adaptive_entropy", "test", AdaptiveEntropy)
    parts = clipped(
        shapers=[in_reward.bind({"target": 0.05})],
        penalties=[_bound(target=0.05), undecided.bind({"target": 3.129, "delta": 0.01})],
    )
    sizes = {"per_device_train_batch_size": 16, "max_steps": 6, "learning_rate": 2e-2, "beta": 1.0}
    return trainer(folder, parts, **sizes, save_strategy="steps", save_steps=2)


@pytest.mark.slow
def test_coefficient_is_updated_each_generation_and_resumed(tmp_path: Path) -> None:
    whole, again = interrupted(tmp_path, [4], adapting)
    shaper, kl_penalty, bonus = (p.state_dict() for p in whole.components.states.by_name.values())
    assert shaper == kl_penalty, "they saw the same"
    assert abs(kl_penalty["factor"] - 1) > 0
    steps = [line for line in whole.state.log_history if "loss" in line]
    factors = [line["penalties/kl_factor"] for line in steps]
    assert factors[0] == pytest.approx(0.98), "on the first generation KL is 0, which is below its target"
    assert factors[-1] == pytest.approx(kl_penalty["factor"])
    paid, c = [], 0.0
    for line in steps:  # one update per generation: what was measured before it is what it logged itself
        c = min(c + 0.01, 1.0) if line["entropy"] <= 3.129 else max(c - 0.01, 0.0)
        paid.append(c if line["entropy"] <= 3.129 else 0.0)
    assert [line["penalties/entropy_coefficient"] for line in steps] == pytest.approx(paid)
    assert len(set(paid)) > 2, "it never moved"
    assert bonus["coefficient"] == pytest.approx(c)
    assert [p.state_dict() for p in again[4].components.states.by_name.values()] == [shaper, kl_penalty, bonus]


def _bound(**knobs: Any) -> Bound:
    return Part("rlm_penalties", "adaptive_kl", "test", AdaptiveKL).bind(knobs)
