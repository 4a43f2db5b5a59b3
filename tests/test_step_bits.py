"""Parts of the step against TRL's formulas: equal to the last bit, value and gradient, in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import trl_formulas
from fixtures_equations import equation, part

from rlm_plugins.builtin import advantages, aggregators, importance, penalties, policy_losses, token_weights
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import objective, score

KINDS = {
    "grpo": part("rlm_aggregators", aggregators.sequence_mean),
    "bnpo": part("rlm_aggregators", aggregators.micro_batch_token_mean),
    "dr_grpo": part("rlm_aggregators", aggregators.fixed_length),
    "dapo": part("rlm_aggregators", aggregators.token_mean),
    "cispo": part("rlm_aggregators", aggregators.token_mean),
    "luspo": part("rlm_aggregators", aggregators.sequence_sum),
}


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


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("delta", [None, 1.5])
@pytest.mark.parametrize(("beta", "weighted"), [(0.0, False), (0.04, False), (0.04, True)])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_and_its_gradient_are_trls_bit_by_bit(
    kind: str, level: str, beta: float, weighted: bool, delta: float | None, accumulation: int
) -> None:
    if kind == "cispo":
        loss = part("rlm_policy_losses", policy_losses.cispo, epsilon_high=4.0)
    else:
        loss = part("rlm_policy_losses", policy_losses.clip, epsilon_high=0.25, delta=delta)
    kl = replace(part("rlm_penalties", penalties.kl, importance_weighted=weighted), options={"beta": beta})
    parts = equation(
        importance=part("rlm_importance", getattr(importance, level)),
        policy_loss=loss,
        penalties=[kl] if beta else [],
        aggregator=KINDS[kind],
    )
    for seed in range(4):
        data = random_step(seed)
        ours, theirs = (data["logp"].clone().requires_grad_() for _ in range(2))
        tokens = data["mask"].sum().float() + 3
        counts = {"num_tokens": tokens, "num_sequences": torch.tensor(8.0 * accumulation)}
        batch = Batch(
            **data | {"logp": ours, "mask": data["mask"].bool()},
            **counts,
            num_micro_batches=torch.tensor(float(accumulation)),
            max_completion_length=32,
        )
        actual = objective(batch, parts)
        options = {
            "level": level,
            "high": 5.0 if kind == "cispo" else 0.25,
            "delta": delta,
            "accumulation": accumulation,
        }
        expected = trl_formulas.loss(
            **data | {"logp": theirs}, kind=kind, tokens=tokens, beta=beta, weighted=weighted, **options
        )
        assert torch.equal(actual, expected)
        assert torch.equal(*(torch.autograd.grad(x, y)[0] for x, y in ((actual, ours), (expected, theirs))))


def scored(rewards: torch.Tensor, generations: int, scale: str) -> torch.Tensor:
    rows = len(rewards)
    batch = Batch(
        rewards=rewards,
        group=torch.arange(rows) // generations,
        mask=torch.ones(rows, 3).bool(),
        max_completion_length=3,
    )
    parts = equation(advantage=part("rlm_advantages", advantages.group_relative, scale=scale))
    return score(batch, parts).advantages.squeeze(1)


@pytest.mark.parametrize("generations", [2, 3, 8, 16, 64])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls_bit_by_bit(scale: str, generations: int) -> None:
    for seed in range(10):
        rewards = torch.rand(192, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(scored(rewards, generations, scale), trl_formulas.advantages(rewards, generations, scale))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_with_unscored_completions_equal_trl_up_to_rounding(scale: str) -> None:
    """TRL adds 0 for NaN, this library drops the completion: the same sum, perhaps in another order."""
    for seed in range(10):
        noise = torch.Generator().manual_seed(seed)
        rewards = torch.rand(64, generator=noise)
        rewards[torch.rand(64, generator=noise) < 0.2] = torch.nan
        torch.testing.assert_close(
            scored(rewards, 8, scale), trl_formulas.advantages(rewards, 8, scale), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("seed", range(4))
def test_vespo_is_trls_bit_by_bit(seed: int) -> None:
    from trl import GRPOTrainer

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
    from trl import GRPOTrainer

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
