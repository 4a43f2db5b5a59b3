"""Parts with models of their own: their loss with its gradient, and their memory to the byte."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixtures_critic import LORA
from test_auxiliary_lm import COMPLETIONS, LENGTHS, PROMPTS, bernoulli, policy, reader

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.models.auxiliary_part import AuxiliaryPart, policy_gradient_loss


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_value_and_gradient_of_the_policy_gradient_loss(aggregation: Any) -> None:
    """Two micro-batches against a loop over tokens."""
    lengths, advantages = [3, 1, 2], torch.tensor([0.7, -1.2, 0.5])
    mask = torch.arange(3) < torch.tensor(lengths).unsqueeze(1)
    values = -torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    logp = values.where(mask, 0.0).requires_grad_()
    loss = policy_gradient_loss(advantages, lengths, aggregation)
    found = loss(logp[[2, 0]], [2, 0]) + loss(logp[[1]], [1])
    found.backward()

    total, gradient = 0.0, torch.zeros(3, 3)
    for i, length in enumerate(lengths):
        for t in range(length):
            weight = 1 / sum(lengths) if aggregation == "token_mean" else 1 / length / 3
            total -= weight * advantages[i].item() * values[i, t].item()
            gradient[i, t] = -weight * advantages[i]
    assert found.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(logp.grad.where(mask, 0.0), gradient)


def test_memory_is_that_of_weights_and_optimizer_states() -> None:
    host = policy()
    stage = SimpleNamespace(source=SimpleNamespace(config=host.config), lora=LORA)
    part = AuxiliaryPart("second", seeds=(1, 2), learning_rate=1e-2)
    part.setup(host, {})
    held = 0
    for model in part.models:
        model.train_step(reader(host), PROMPTS, COMPLETIONS, int(LENGTHS.max()), bernoulli, 0)
        weights = model._adapter.parameters()
        assert all(x.grad is None for x in weights)
        moments = [x for state in model._optimizer._optimizer.state.values() for x in state.values() if x.ndim]
        held += sum(x.numel() * x.element_size() for x in (*weights, *moments))
    assert part.memory_bytes(stage) == held
    larger = AuxiliaryPart("second", learning_rate=1e-2, lora={**LORA, "r": 2 * LORA["r"]})
    assert larger.memory_bytes(stage) == held, "two models of rank r, one of rank 2 r"


def test_models_of_a_part_differ_by_their_seed() -> None:
    host = policy()
    part = AuxiliaryPart("second", seeds=(1, 1, 2), learning_rate=1e-2)
    with pytest.raises(PartError, match="requires a policy"):
        assert part.models
    assert part.state_dict() == {}
    part.setup(host, {})
    first, same, other = ([x.detach() for x in model._adapter.parameters()] for model in part.models)
    assert all(map(torch.equal, first, same))
    assert not all(map(torch.equal, first, other))


def test_trained_base_is_rejected_before_loading() -> None:
    with pytest.raises(RecipeError, match="`second` requires a frozen base"):
        AuxiliaryPart("second", learning_rate=1e-2).check(None)
