"""The equation as code: `score` and `objective` with their parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures_equations import equation, loss_batch, part, scoring
from hypothesis import given
from hypothesis import strategies as st
from rlm_testing import batches

from rlm_plugins.builtin import advantages, importance, penalties, policy_losses, shapers
from rlm_plugins.builtin import token_weights as weights
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import objective, score
from rlm_plugins.errors import PartError

NAN = torch.nan


def test_reward_is_on_the_last_trained_token() -> None:
    batch = scoring([1.0, 2.0, 3.0], lengths=[3, 1, 2])
    batch.mask[0, 1] = False
    batch.mask = torch.cat([batch.mask, torch.zeros(3, 1, dtype=torch.bool)], 1)
    found = score(batch, equation()).token_rewards
    assert found.tolist() == [[0, 0, 1, 0], [2, 0, 0, 0], [0, 3, 0, 0]]


def test_sequence_shaper_replaces_the_reward_on_the_last_token() -> None:
    def doubled(rewards):
        return rewards * 2

    found = score(scoring([1.0, 3.0]), equation(shapers=[part("rlm_shapers", doubled)]))
    assert found.rewards.tolist() == [2.0, 6.0]
    assert found.token_rewards.tolist() == [[0, 2], [0, 6]]
    assert found.advantages.tolist() == [[-2.0], [2.0]]


def test_token_shaper_is_added_at_its_token() -> None:
    def early(rewards, mask):
        return torch.tensor([[0.5, 0.0], [0.25, 7.0]])

    batch = scoring([1.0, 3.0], lengths=[2, 1])
    found = score(batch, equation(shapers=[part("rlm_shapers", early)]))
    assert found.token_rewards.tolist() == [[0.5, 1.0], [3.25, 0.0]]
    assert found.rewards.tolist() == [1.5, 3.25]  # the 7 stood on padding


def test_shapers_run_in_order_on_earlier_results() -> None:
    def plus_one(rewards):
        return rewards + 1

    def doubled(rewards):
        return rewards * 2

    def dense(rewards, token_rewards):
        return token_rewards

    chain = [part("rlm_shapers", shaper) for shaper in (plus_one, dense, doubled)]
    found = score(scoring([1.0]), equation(shapers=chain))
    assert found.rewards.tolist() == [8.0]
    assert found.token_rewards.tolist() == [[0, 8.0]]


def test_sequence_shaper_keeps_dense_rewards() -> None:
    old, ref = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-2.0, -3.0]])
    kl = part("rlm_shapers", shapers.kl_in_reward, beta=0.5)
    overlong = part("rlm_shapers", shapers.overlong, max_length=2, cache=1)
    found = score(scoring([1.0], old_logp=old, ref_logp=ref), equation(shapers=[kl, overlong]))
    assert found.token_rewards.tolist() == [[-0.5, -1.0]]  # 1 − 1 (KL) − 1 (length) on the last token
    assert found.dense_rewards.tolist() == [[-0.5, -1.0]], "the KL: what came token by token, wherever else is paid"
    assert found.rewards.tolist() == [-1.5]


def test_unscored_completions_are_excluded_and_keep_their_index() -> None:
    seen: list[int] = []

    def counted(rewards):
        seen.append(len(rewards))
        return rewards - rewards.mean()

    found = score(scoring([1.0, NAN, 3.0]), equation(advantage=part("rlm_advantages", counted)))
    assert seen == [2]
    assert found.advantages.tolist() == [[-1.0], [0.0], [1.0]]
    assert found.rewards.isnan().tolist() == [False, True, False]
    assert found.mask.all()


def test_batch_without_scores_has_no_gradient() -> None:
    values = torch.ones(2, 2)
    found = score(scoring([NAN, NAN], values=values), equation(advantage=part("rlm_advantages", advantages.gae)))
    assert found.advantages.tolist() == [[0.0], [0.0]]
    assert found.returns is values  # the critic has no error
    assert found.mask.all()


def test_advantage_gets_only_kept_completions() -> None:
    def positive(rewards):
        return rewards > 0

    def small(rewards):
        assert len(rewards) == 4  # a filter gets all completions, not those that the previous one kept
        return rewards < 10

    sieves = [part("rlm_filters", sieve) for sieve in (positive, small)]
    found = score(scoring([1.0, 3.0, -5.0, 20.0]), equation(filters=sieves))
    assert found.advantages.tolist() == [[-1.0], [1.0], [0.0], [0.0]]
    assert found.mask.any(1).tolist() == [True, True, False, False]


def test_filters_do_not_get_unscored_completions() -> None:
    spread = part("rlm_filters", shapers.nonzero_std)
    batch = scoring([1.0, 0.0, 1.0, NAN], group=[0, 0, 1, 1], named_rewards={})
    assert score(batch, equation(filters=[spread])).mask.any(1).tolist() == [True, True, False, True]


def test_empty_keep_mask_trains_nothing() -> None:
    def never(rewards):
        return rewards > 99

    batch = scoring([1.0, 2.0], values=torch.ones(2, 2))
    found = score(
        batch, equation(filters=[part("rlm_filters", never)], advantage=part("rlm_advantages", advantages.gae))
    )
    assert not found.mask.any()
    assert not found.advantages.any()


def test_returns_keep_the_order_of_completions() -> None:
    values = torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]])
    gae = part("rlm_advantages", advantages.gae, lam=1.0, whitened=False)
    found = score(scoring([5.0, NAN, 7.0], values=values), equation(advantage=gae))
    assert found.returns.tolist() == [[5.0, 5.0], [9.0, 9.0], [7.0, 7.0]]
    assert found.advantages.tolist() == [[4.0, 3.0], [0.0, 0.0], [4.0, 3.0]]


def test_scoring_parts_get_zeros_in_the_padding() -> None:
    def baseline(rewards, values):
        return rewards - values.sum(1)

    values = torch.tensor([[1.0, 2.0], [3.0, NAN]])
    batch = scoring([0.0, 0.0], lengths=[2, 1], values=values)
    assert score(batch, equation(advantage=part("rlm_advantages", baseline))).advantages.tolist() == [[-3.0], [-3.0]]


def test_score_does_not_change_its_batch() -> None:
    batch = scoring([1.0, NAN, 2.0], lengths=[2, 1, 2])
    before = batch.rewards.clone(), batch.mask.clone()
    score(batch, equation(filters=[part("rlm_filters", lambda rewards: rewards > 9)], shapers=[]))
    assert torch.equal(batch.rewards.nan_to_num(), before[0].nan_to_num())
    assert torch.equal(batch.mask, before[1])


def test_loss_weights_penalties_and_counts_by_hand() -> None:
    def constant(logp):
        return torch.full_like(logp, 10.0)

    half = part("rlm_token_weights", weights.mask_truncated)
    cost = replace(part("rlm_penalties", constant), options={"beta": 0.5})
    batch = loss_batch()
    loss = objective(batch, equation(token_weights=[half], penalties=[cost]))
    # row 0: −1·(−1 −2 −3) = 6, row 1 is cut off: weight 0; penalties 0.5·10 on each of 4 tokens; over 4 tokens
    assert loss.item() == (6 + 20) / 4
    (gradient,) = torch.autograd.grad(loss, batch.logp)
    assert gradient.tolist() == [[-0.25] * 3, [0.0] * 3]


def test_token_weights_multiply_and_carry_no_gradient() -> None:
    def confident(logp):
        return logp.exp()

    def tripled(logp):
        return torch.full_like(logp, 3.0)

    batch = loss_batch()
    chain = [part("rlm_token_weights", weight) for weight in (confident, tripled)]
    (gradient,) = torch.autograd.grad(objective(batch, equation(token_weights=chain)), batch.logp)
    expected = -batch.advantages * batch.logp.exp() * 3 / 4
    torch.testing.assert_close(gradient, expected.detach() * batch.mask)


def test_the_engines_weight_multiplies_the_loss_but_not_the_penalties() -> None:
    def constant(logp):
        return torch.ones_like(logp)

    cost = part("rlm_penalties", constant)
    loss = objective(loss_batch(rollout_weight=torch.full((2, 3), 2.0)), equation(penalties=[cost]))
    assert loss.item() == (2 * (6 - 8) + 4) / 4


def test_ratio_is_finite_for_extreme_log_probs() -> None:
    batch = loss_batch(old_logp=torch.full((2, 3), -1e4))
    parts = {
        "importance": part("rlm_importance", importance.token),
        "policy_loss": part("rlm_policy_losses", policy_losses.clip),
    }
    loss = objective(batch, equation(**parts))
    (gradient,) = torch.autograd.grad(loss, batch.logp)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_sequence_loss_applies_to_each_token() -> None:
    def per_row(advantages, logp):
        return -advantages * logp.sum(1, keepdim=True)

    loss = objective(loss_batch(), equation(policy_loss=part("rlm_policy_losses", per_row)))
    assert loss.item() == (3 * 6 + 1 * 2 * -4) / 4  # padding is 0 for every part, so row 1 sums to −4


def test_logged_values_have_the_key_of_their_part() -> None:
    seen: dict[str, torch.Tensor] = {}
    parts = {
        "importance": part("rlm_importance", importance.token),
        "policy_loss": part("rlm_policy_losses", policy_losses.clip),
        "penalties": [part("rlm_penalties", penalties.kl_old)],
    }
    objective(loss_batch(log=seen.__setitem__), equation(**parts))
    assert set(seen) == {"policy_loss/clipped_low", "policy_loss/clipped_high", "penalties/kl_old"}
    assert not any(x.requires_grad for x in seen.values())


EVERYTHING = {
    "importance": part("rlm_importance", importance.sequence),
    "policy_loss": part("rlm_policy_losses", policy_losses.clip),
    "token_weights": [part("rlm_token_weights", weights.mask_truncated)],
    "penalties": [
        part("rlm_penalties", penalties.kl, importance_weighted=True),
        part("rlm_penalties", penalties.kl_old),
        part("rlm_penalties", penalties.entropy),
    ],
    "shapers": [part("rlm_shapers", shapers.kl_in_reward), part("rlm_shapers", shapers.overlong)],
    "filters": [part("rlm_filters", shapers.nonzero_std)],
    "advantage": part("rlm_advantages", advantages.gae),
}


def spoilt(batch: Batch, value: float) -> Batch:
    names = ("logp", "old_logp", "ref_logp", "entropy", "values", "rollout_weight")
    dirty = {name: getattr(batch, name).masked_fill(~batch.mask, value) for name in names}
    return replace(batch, **dirty)


@given(batches(), st.sampled_from([NAN, torch.inf, -torch.inf, 1e30]), st.sampled_from(["token", "cispo", "reinforce"]))
def test_inf_and_nan_in_the_padding_change_no_loss_and_no_gradient(batch: Batch, value: float, kind: str) -> None:
    batch = replace(batch, rollout_weight=batch.logp.exp())
    variants = {
        "token": {"importance": part("rlm_importance", importance.token)},
        "cispo": {"policy_loss": part("rlm_policy_losses", policy_losses.cispo)},
        "reinforce": {"policy_loss": part("rlm_policy_losses", policy_losses.reinforce)},
    }
    parts = equation(**EVERYTHING | variants[kind])

    def loss_and_gradient(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        logp = batch.logp.clone().requires_grad_()
        loss = objective(replace(batch, logp=logp), parts)
        return loss.detach(), torch.autograd.grad(loss, logp)[0]

    clean, dirty = loss_and_gradient(batch), loss_and_gradient(spoilt(batch, value))
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[1], dirty[1])
    assert not dirty[1][~batch.mask].any()


@given(batches(), st.sampled_from([NAN, torch.inf, 1e30]))
def test_inf_and_nan_in_the_padding_change_no_advantage(batch: Batch, value: float) -> None:
    parts = equation(**EVERYTHING)
    clean, dirty = score(batch, parts), score(spoilt(batch, value), parts)
    for name in ("rewards", "token_rewards", "advantages", "mask"):
        assert torch.equal(getattr(clean, name), getattr(dirty, name)), name


def test_equation_lists_parts_and_required_data() -> None:
    parts = equation(**EVERYTHING)
    names = [bound.part.name for bound in parts.parts()]
    assert names[:4] == ["kl_in_reward", "overlong", "nonzero_std", "gae"]
    assert names[-1] == "token_mean"
    assert parts.requires("values")
    assert parts.requires("ref_logp")
    assert not parts.requires("rollout_logp")
    assert not parts.requires("log")  # welcome, not needed


def error_of(**slots: Any) -> str:
    """Return the error for a loss without a gradient."""
    with pytest.raises(PartError) as caught:
        objective(replace(loss_batch(), logp=loss_batch().logp.detach().requires_grad_()), equation(**slots))
    return str(caught.value)


def test_non_finite_loss_names_the_first_part_at_fault() -> None:
    def loss(logp, advantages):
        return logp * advantages * NAN

    def cost(logp):
        return logp / 0

    assert "part 'test/loss' (rlm_policy_losses" in error_of(policy_loss=part("rlm_policy_losses", loss))
    both = {"policy_loss": part("rlm_policy_losses", loss), "penalties": [part("rlm_penalties", cost)]}
    assert "part 'test/cost' (rlm_penalties" in error_of(**both)


def test_diverged_weights_are_not_reported_as_a_part_error() -> None:
    logp = torch.full_like(loss_batch().logp, NAN).requires_grad_()
    with pytest.raises(PartError, match="log-probabilities are not finite"):
        objective(replace(loss_batch(), logp=logp), equation())


def test_a_loss_without_gradient_is_refused() -> None:
    def loss(logp, advantages):
        return logp.detach() * advantages

    assert "it does not depend on the current policy" in error_of(policy_loss=part("rlm_policy_losses", loss))


def test_integer_rewards_are_accepted() -> None:
    def place(group):
        return torch.arange(len(group))

    def doubled(rewards):
        return (rewards * 2).long()

    found = score(
        scoring([1.0, 3.0]), equation(shapers=[part("rlm_shapers", doubled)], advantage=part("rlm_advantages", place))
    )
    assert found.rewards.tolist() == [2.0, 6.0]
    assert found.advantages.dtype == torch.float32
    assert found.advantages.tolist() == [[0.0], [1.0]]


def test_filter_that_returns_nan_is_rejected() -> None:
    def unsure(rewards):
        return rewards * NAN

    with pytest.raises(PartError, match=r"(?s)part 'test/unsure' .*returned numbers.*booleans"):
        score(scoring([1.0, 3.0]), equation(filters=[part("rlm_filters", unsure)]))
