"""Certainty shapers: contract, and values against torch distributions."""

from __future__ import annotations

import pytest
import torch
from rlm_intrinsic import self_certainty, token_entropy
from rlm_testing import conformance
from torch.distributions import Categorical, kl_divergence

from rlm_plugins.trainer.passes import token_statistics

test_self_certainty_laws = conformance("rlm_shapers", self_certainty)
test_entropy_laws = conformance("rlm_shapers", token_entropy)
test_sum_laws = conformance("rlm_shapers", token_entropy, knobs={"mean": False})

ROWS, WORDS = 3, 7
LENGTHS = (4, 2, 1)
LOGITS = torch.randn(ROWS, 4, WORDS, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
TOKENS = torch.randint(WORDS, (ROWS, 4), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(4) < torch.tensor(LENGTHS).unsqueeze(1)
STATISTICS = token_statistics(LOGITS, TOKENS)
REWARDS = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
UNIFORM = Categorical(logits=torch.zeros(WORDS, dtype=torch.float64))


def each(row: int) -> list[Categorical]:
    return [Categorical(logits=LOGITS[row, t]) for t in range(LENGTHS[row])]


def test_shapers_match_torch_distributions() -> None:
    certainty = self_certainty(REWARDS, STATISTICS["self_certainty"], MASK) - REWARDS
    mean = token_entropy(REWARDS, STATISTICS["entropy"], MASK) - REWARDS
    total = token_entropy(REWARDS, STATISTICS["entropy"], MASK, mean=False) - REWARDS
    for row in range(ROWS):
        steps = each(row)
        entropy = sum(step.entropy().item() for step in steps)
        divergence = sum(kl_divergence(UNIFORM, step).item() for step in steps)
        assert certainty[row].item() == pytest.approx(divergence / len(steps))
        assert [mean[row].item(), total[row].item()] == pytest.approx([-entropy / len(steps), -entropy])
