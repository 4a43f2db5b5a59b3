"""Pieces of the step against TRL's formulas: equal to the last bit, value and gradient, in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import stock
import torch
from by_hand import equation, part

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
    kl = replace(part("rlm_penalties", penalties.kl, importance_weighted=weighted), beta=beta)
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
        counts = {"tokens": tokens, "rows": torch.tensor(8.0 * accumulation)}
        batch = Batch(
            **data | {"logp": ours, "mask": data["mask"].bool()},
            **counts,
            micro_batches=torch.tensor(float(accumulation)),
            max_completion_length=32,
        )
        found = objective(batch, parts)
        options = {
            "level": level,
            "high": 5.0 if kind == "cispo" else 0.25,
            "delta": delta,
            "accumulation": accumulation,
        }
        expected = stock.loss(
            **data | {"logp": theirs}, kind=kind, tokens=tokens, beta=beta, weighted=weighted, **options
        )
        assert torch.equal(found, expected)
        assert torch.equal(*(torch.autograd.grad(x, y)[0] for x, y in ((found, ours), (expected, theirs))))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls_bit_by_bit(scale: str) -> None:
    parts = equation(advantage=part("rlm_advantages", advantages.group_relative, scale=scale))
    for seed in range(20):
        noise = torch.Generator().manual_seed(seed)
        rewards = torch.rand(64, generator=noise)
        batch = Batch(
            rewards=rewards, group=torch.arange(64) // 8, mask=torch.ones(64, 3).bool(), max_completion_length=3
        )
        assert torch.equal(score(batch, parts).advantages.squeeze(1), stock.advantages(rewards, 8, scale))
