"""Pieces of the step against TRL's formulas: equal to the last bit, value and gradient, in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import trl_formulas
from fixtures_equations import equation, part

from rlm_plugins.batch import Batch
from rlm_plugins.builtin import advantages, aggregators, importance, penalties, policy_losses
from rlm_plugins.step import objective, score

KINDS = {
    "grpo": part("rlm_aggregators", aggregators.sequence_mean),
    "bnpo": part("rlm_aggregators", aggregators.micro_batch_token_mean),
    "dr_grpo": part("rlm_aggregators", aggregators.fixed_length),
    "dapo": part("rlm_aggregators", aggregators.token_mean),
    "cispo": part("rlm_aggregators", aggregators.token_mean),
    "luspo": part("rlm_aggregators", aggregators.sequence_sum),
}


def random_step(seed: int, rows: int = 8, width: int = 16) -> dict[str, torch.Tensor]:
    """Float32, as in training; an int mask, as TRL's; every row has a token."""
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
    kl = replace(part("rlm_penalties", penalties.kl, importance_weighted=weighted), beside={"beta": beta})
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
        found = objective(batch, parts)
        options = {
            "level": level,
            "high": 5.0 if kind == "cispo" else 0.25,
            "delta": delta,
            "accumulation": accumulation,
        }
        expected = trl_formulas.loss(
            **data | {"logp": theirs}, kind=kind, tokens=tokens, beta=beta, weighted=weighted, **options
        )
        assert torch.equal(found, expected)
        assert torch.equal(*(torch.autograd.grad(x, y)[0] for x, y in ((found, ours), (expected, theirs))))


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
    """TRL adds NaN as 0 in its place, we leave the row out: the same sum, perhaps in another order."""
    for seed in range(10):
        noise = torch.Generator().manual_seed(seed)
        rewards = torch.rand(64, generator=noise)
        rewards[torch.rand(64, generator=noise) < 0.2] = torch.nan
        torch.testing.assert_close(
            scored(rewards, 8, scale), trl_formulas.advantages(rewards, 8, scale), rtol=1e-5, atol=1e-6
        )
