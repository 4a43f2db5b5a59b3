"""Parts of the step against TRL's formulas: equal to the last bit, value and gradient, in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fixtures_equations import equation, part

from rlm_plugins.builtin import aggregators, importance, penalties, policy_losses, token_weights
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import objective


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
