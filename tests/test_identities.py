"""Identities between algorithms, or an algorithm and a formula, on any batch.

Through whole rows where the identity is one between algorithms: from rewards to loss and gradient. (What holds for
every row by itself is in `test_every_algorithm`; DFT and the other supervised losses have theirs beside their rows.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures_equations import (
    REGISTRY,
    equation,
    equation_of,
    loss_and_gradient,
    loss_and_gradient_from_rewards,
    part,
    scored,
)
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.importance_ratios import geometric_clipped
from rlm_algorithms.policy_losses import gradient_preserving
from rlm_testing import batches

from rlm_plugins.builtin import advantages, aggregators, importance, penalties, policy_losses
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import score

Tensor = torch.Tensor
close = torch.testing.assert_close
WIDE = {"epsilon": 1e3, "epsilon_high": None}


def sizes(batch: Batch) -> Tensor:
    """Return the group size of each completion, (B, 1)."""
    return (batch.group.unsqueeze(1) == batch.group).sum(1, keepdim=True).double()


def binary(batch: Batch) -> Batch:
    return replace(batch, rewards=(batch.rewards > 0.3).double())


def on_policy(batch: Batch) -> Batch:
    return replace(batch, logp=batch.old_logp, ref_logp=batch.old_logp, rollout_logp=batch.old_logp)


# ---- Â


@given(batches())
def test_rloo_is_reinforce_times_n_over_n_minus_one(batch: Batch) -> None:
    """Gradients are compared by completion, also for groups of different size; a group of one has no baseline."""
    factor = (sizes(batch) / (sizes(batch) - 1)).nan_to_num(posinf=0.0)
    rloo, reinforce = equation_of("rloo", shapers=()), equation_of("reinforce")
    close(score(batch, rloo).advantages, factor * score(batch, reinforce).advantages)
    close(loss_and_gradient_from_rewards(batch, rloo)[1], factor * loss_and_gradient_from_rewards(batch, reinforce)[1])


@given(batches(groups=1))
def test_rloo_of_one_group_is_a_multiple_in_value_too(batch: Batch) -> None:
    n = len(batch.group)
    actual, expected = (
        loss_and_gradient_from_rewards(batch, equation_of("rloo", shapers=())),
        loss_and_gradient_from_rewards(batch, equation_of("reinforce")),
    )
    close(actual, tuple(x * n / (n - 1) if n > 1 else x * 0 for x in expected))


@given(batches())
def test_pass_at_one_is_grpo_with_the_std_of_a_population(batch: Batch) -> None:
    population = part("rlm_advantages", advantages.group_relative, unbiased=False, eps=0.0)
    close(
        loss_and_gradient_from_rewards(binary(batch), equation_of("pass_at_k", advantage={"k": 1})),
        loss_and_gradient_from_rewards(binary(batch), equation_of("pass_at_k", advantage=population)),
    )


@given(batches())
def test_undiscounted_gae_is_the_return_minus_the_value(batch: Batch) -> None:
    gae = part("rlm_advantages", advantages.gae, gamma=1.0, lam=1.0, whitened=False)
    live = batch.mask.any(1, keepdim=True) & batch.mask
    reward = batch.rewards.unsqueeze(1).expand(live.shape).where(live, 0.0)
    surprise = (reward - batch.values).where(live, 0.0)
    symbols = equation(advantage=gae)
    found = scored(batch, symbols)
    close((found.advantages, found.returns), (surprise, reward))
    close(loss_and_gradient(found, symbols)[1], -surprise / found.num_tokens)


@given(batches())
def test_without_shaper_and_filter_dapo_is_grpo_with_another_sum_and_clip(batch: Batch) -> None:
    dapo = equation_of("dapo", shapers=(), filters=())
    token_mean = part("rlm_aggregators", aggregators.token_mean)
    grpo = equation_of("grpo", penalties=(), aggregator=token_mean, policy_loss=dapo.policy_loss)
    close(loss_and_gradient_from_rewards(batch, dapo), loss_and_gradient_from_rewards(batch, grpo))


# ---- ℓ and w on policy: where the policy has not moved yet, every surrogate is REINFORCE

SURROGATES: dict[str, dict[str, Any]] = {
    "clip": {},
    "clip, dual": {"delta": 3.0},
    "unclipped": {},
    "gradient_preserving": {"delta": 3.0},
    "gradient_preserving, CE": {"beta_low": 0.5},
    "sapo": {"tau_positive": 2.0},
    "cispo": {},
    "cispo, bounded below": {"epsilon_low": 0.2},
}


@pytest.mark.parametrize("name", SURROGATES)
@given(batch=batches())
def test_on_policy_a_surrogate_has_the_gradient_of_reinforce(name: str, batch: Batch) -> None:
    """This also holds for advantages that differ between tokens."""
    loss = REGISTRY.find("rlm_policy_losses", name.partition(",")[0]).bind(SURROGATES[name])
    symbols = equation(
        importance=part("rlm_importance", importance.token),
        policy_loss=loss,
    )
    batch = on_policy(batch)
    _, gradient = loss_and_gradient(batch, symbols)
    close(gradient, (-batch.advantages / batch.num_tokens).expand(batch.mask.shape).where(batch.mask, 0.0))


SUMS = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")


@pytest.mark.parametrize("aggregator", SUMS)
@pytest.mark.parametrize("level", [importance.token, importance.sequence, importance.sequence_token, geometric_clipped])
@given(batch=batches())
def test_on_policy_sequence_ratio_equals_token_ratio(level: Any, aggregator: str, batch: Batch) -> None:
    """This holds for one advantage per completion, and aggregators that weight the tokens of a completion equally."""
    batch = on_policy(replace(batch, advantages=batch.advantages[:, :1]))
    total = part("rlm_aggregators", getattr(aggregators, aggregator))
    symbols = equation(
        importance=part("rlm_importance", level),
        policy_loss=part("rlm_policy_losses", policy_losses.clip),
        aggregator=total,
    )
    close(loss_and_gradient(batch, symbols)[1], loss_and_gradient(batch, equation(aggregator=total))[1])


@pytest.mark.parametrize("name", ["grpo", "gspo", "gspo_token", "gmpo"])
@given(batch=batches())
def test_on_policy_gspo_and_gmpo_are_the_mean_of_sequence_means(name: str, batch: Batch) -> None:
    """The gradient is −Âᵢ / nᵢ / number of completions for every token."""
    symbols = equation_of(name)
    found = scored(on_policy(batch), symbols)
    n = found.mask.sum(1, keepdim=True).clamp(min=1)
    close(loss_and_gradient(found, symbols)[1], (-found.advantages / n / found.num_sequences).where(found.mask, 0.0))


def product(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Compute log w = Σₜ (log π − log π_old)."""
    return (logp - old_logp).where(mask, 0.0).sum(1, keepdim=True)


@given(batches())
def test_on_policy_the_ratio_of_whole_completions_is_rloos_sum(batch: Batch) -> None:
    """With a clip on the product of ratios and a mean over completions, a completion is one action, as in `rloo`."""
    batch = on_policy(batch)
    clipped = equation_of(
        "gspo", importance=part("rlm_importance", product), advantage=part("rlm_advantages", advantages.leave_one_out)
    )
    close(
        loss_and_gradient_from_rewards(batch, clipped)[1],
        loss_and_gradient_from_rewards(batch, equation_of("rloo", shapers=()))[1],
    )


# ---- ℓ and w off policy


@given(batches())
def test_gmpo_is_gspo_when_nothing_clips(batch: Batch) -> None:
    close(
        loss_and_gradient_from_rewards(batch, equation_of("gmpo", importance={"epsilon": 1e3})),
        loss_and_gradient_from_rewards(batch, equation_of("gspo", policy_loss=WIDE)),
    )


@given(batches())
def test_gspo_token_equals_gspo_with_sequence_advantages(batch: Batch) -> None:
    close(
        loss_and_gradient_from_rewards(batch, equation_of("gspo_token")),
        loss_and_gradient_from_rewards(batch, equation_of("gspo")),
    )


@given(batches())
def test_gepo_of_groups_of_one_is_gspo(batch: Batch) -> None:
    """The advantages are computed before, since a group of one would have none."""
    gepo = equation_of("gepo")
    alone = scored(replace(batch, group=torch.arange(len(batch.group))), gepo)
    alone = replace(alone, advantages=batch.advantages[:, :1])
    close(
        loss_and_gradient(alone, gepo),
        loss_and_gradient(alone, equation_of("gspo", policy_loss={"epsilon": 0.2, "epsilon_high": None})),
    )


@given(batches())
def test_ce_gppo_of_one_and_one_is_gppo(batch: Batch) -> None:
    found = loss_and_gradient_from_rewards(
        batch, equation_of("ce_gppo", policy_loss={"epsilon_high": 0.28, "beta_low": 1.0, "beta_high": 1.0})
    )
    assert all(map(torch.equal, found, loss_and_gradient_from_rewards(batch, equation_of("gppo"))))


@given(batches())
def test_gppo_is_the_clip_in_value_and_without_its_betas_in_gradient(batch: Batch) -> None:
    clipped = equation_of("dapo", shapers=(), filters=())
    close(
        loss_and_gradient_from_rewards(batch, equation_of("gppo"))[0], loss_and_gradient_from_rewards(batch, clipped)[0]
    )
    none = {"beta_low": 0.0, "beta_high": 0.0}
    close(
        loss_and_gradient_from_rewards(batch, equation_of("gppo", policy_loss=none))[1],
        loss_and_gradient_from_rewards(batch, clipped)[1],
    )


@given(batches())
def test_unclipped_surrogates_agree(batch: Batch) -> None:
    token = equation_of("grpo", policy_loss=WIDE, penalties=())
    plain = replace(token, policy_loss=part("rlm_policy_losses", policy_losses.unclipped))
    gppo = part("rlm_policy_losses", gradient_preserving, **WIDE)
    close(loss_and_gradient_from_rewards(batch, token), loss_and_gradient_from_rewards(batch, plain))
    close(
        loss_and_gradient_from_rewards(batch, replace(token, policy_loss=gppo)),
        loss_and_gradient_from_rewards(batch, plain),
    )


# ---- c, Ω, 1/Z


@given(batches(), st.floats(0.5, 3.0))
def test_flash_rl_weighs_every_token_with_no_more_than_its_cap(batch: Batch, cap: float) -> None:
    """The gradient is compared by token; where inference engine and trainer agree, it is DAPO's loss."""
    weight = (batch.old_logp - batch.rollout_logp).exp().clamp(max=cap)
    bare = equation_of("dapo", shapers=(), filters=())
    close(
        loss_and_gradient_from_rewards(batch, equation_of("flash_rl", token_weights={"cap": cap}))[1],
        weight * loss_and_gradient_from_rewards(batch, bare)[1],
    )
    agreed = replace(batch, rollout_logp=batch.old_logp)
    close(loss_and_gradient_from_rewards(agreed, equation_of("flash_rl")), loss_and_gradient_from_rewards(agreed, bare))


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@given(batch=batches())
def test_kl_is_zero_with_zero_gradient_at_the_reference(estimator: str, batch: Batch) -> None:
    kl = part("rlm_penalties", penalties.kl, estimator=estimator)
    at_home = replace(batch, ref_logp=batch.logp)
    close(
        loss_and_gradient_from_rewards(at_home, equation_of("grpo", penalties=[kl])),
        loss_and_gradient_from_rewards(at_home, equation_of("grpo", penalties=())),
    )


SINGLE: dict[str, Callable[[Batch], float]] = {name: lambda batch: 1.0 for name in REGISTRY.names("rlm_aggregators")}
del SINGLE["prompt_mean"]  # of groups with empty completions each prompt weighs the same, not each token
SINGLE["fixed_length"] = lambda batch: 1 / batch.max_completion_length


@pytest.mark.parametrize("aggregator", SINGLE)
@given(batch=batches(tokens=1))
def test_of_single_tokens_all_sums_agree_up_to_a_constant(aggregator: str, batch: Batch) -> None:
    def of(symbols: Equation) -> tuple[Tensor, Tensor]:
        return loss_and_gradient_from_rewards(batch, symbols)

    other = REGISTRY.find("rlm_aggregators", aggregator).bind({})
    factor = SINGLE[aggregator](batch)
    close(of(equation_of("grpo", aggregator=other)), tuple(factor * x for x in of(equation_of("grpo"))))


@given(batches(tokens=1))
def test_of_single_tokens_gspo_is_grpo(batch: Batch) -> None:
    knobs = {"epsilon": 0.2, "epsilon_high": None}
    close(
        loss_and_gradient_from_rewards(batch, equation_of("gspo", policy_loss=knobs)),
        loss_and_gradient_from_rewards(batch, equation_of("grpo", penalties=())),
    )
