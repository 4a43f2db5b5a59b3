"""Certainty shapers: contract, and values against torch distributions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlm_intrinsic import cross_entropy, probability_disparity, self_certainty, token_entropy
from rlm_testing import conformance
from torch.distributions import Categorical, kl_divergence

from rlm_plugins.trainer.passes import token_statistics

test_self_certainty_laws = conformance("rlm_shapers", self_certainty)
test_entropy_laws = conformance("rlm_shapers", token_entropy)
test_disparity_laws = conformance("rlm_shapers", probability_disparity, knobs={"last": 2})

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


def by_hand(row: int) -> dict[str, float]:
    """Compute all shapers token by token with torch distributions."""
    steps = each(row)
    logp = sum(step.log_prob(TOKENS[row, t]).item() for t, step in enumerate(steps))
    ordered = [step.probs.sort(descending=True).values for step in steps]
    return {
        "self_certainty": sum(kl_divergence(UNIFORM, step).item() for step in steps) / len(steps),
        "likelihood": logp / len(steps),
        "summed": logp,
        "entropy": -sum(step.entropy().item() for step in steps) / len(steps),
        "probability": torch.stack([step.probs[TOKENS[row, t]] for t, step in enumerate(steps)]).prod().item(),
        "disparity": sum((p[0] - p[1]).item() for p in ordered) / len(steps),
    }


def sampled(psi: Any) -> torch.Tensor:
    given: Any = {name: STATISTICS[name] for name in ("self_certainty", "old_logp", "entropy")}
    given |= {"mask": MASK, "completion_ids": [[]] * ROWS, "tokenizer": None}
    return cross_entropy(REWARDS, **given, q="sample", sigma=-1, psi=psi)


def test_shapers_match_torch_distributions() -> None:
    read = STATISTICS
    found = {
        "self_certainty": self_certainty(REWARDS, read["self_certainty"], MASK),
        "likelihood": sampled("mean"),
        "summed": sampled("sum"),
        "entropy": token_entropy(REWARDS, read["entropy"], MASK),
        "probability": sampled("probability"),
        "disparity": probability_disparity(REWARDS, read["top2_margin"], MASK, torch.zeros(3).long(), [[]] * 3, None),
    }
    for name, values in found.items():
        assert (values - REWARDS).tolist() == pytest.approx([by_hand(row)[name] for row in range(ROWS)]), name


def test_last_tokens_with_masked_gaps() -> None:
    mask = torch.tensor([[True, True, False, True]])
    margin = torch.tensor([[0.1, 0.2, 0.9, 0.4]])
    batch = (torch.zeros(1), margin, mask, torch.zeros(1).long(), [[]], None)
    assert probability_disparity(*batch, last=2).item() == pytest.approx(0.3)
    assert probability_disparity(*batch, last=9).item() == pytest.approx(0.7 / 3)
