"""The formulas against numbers of released code for synthetic data (`released.json`; none of that code is here).

`prime`: verl-recipe 48ea0a797f, `compute_rloo_advantage_return` with both coefficients 5 and `compute_ce_dpo_loss_rm`.
`vine`: McGill-NLP/VinePPO efe7228469, `_compute_step_advantages`; the last of its values is that of the end.
`tree`: RyanLiu112/AttnRL 378c38ed0e, of root → x (1), y → (0, 1, 0), z (0).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process.advantages import tree
from rlm_process.prime import _cross_entropy, outcome_and_process
from rlm_process.state_values import step_advantages

SAID = json.loads(Path(__file__).with_name("released.json").read_text(encoding="utf-8"))
BETA = 0.05


def rows(case: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return outcome, ρ, group and mask."""
    mask = torch.tensor(case["mask"]).bool()
    dense = BETA * torch.tensor(case["dense_rewards"], dtype=torch.float64)
    return torch.tensor(case["scores"], dtype=torch.float64), dense.where(mask, 0.0), torch.tensor(case["groups"]), mask


@pytest.mark.parametrize("case", SAID["prime"])
def test_the_advantage_of_prime(case: dict[str, Any]):
    outcome, dense, group, mask = rows(case)
    actual = outcome_and_process(outcome + dense.sum(1), group, mask, dense, stretched=True, whitened=True)
    expected = torch.tensor(case["advantages"], dtype=torch.float64)
    torch.testing.assert_close(actual, expected.where(mask, 0.0), rtol=0.0, atol=1e-6)
    paper = outcome_and_process(outcome + dense.sum(1), group, mask, dense, whitened=True)
    assert (paper - actual).abs().max() > 0.01  # the two baselines are not the same


@pytest.mark.parametrize("case", SAID["prime"])
def test_prime_loss(case: dict[str, Any]):
    outcome, dense, _, _ = rows(case)
    assert _cross_entropy(dense.sum(1), outcome.clamp(0, 1)).item() == pytest.approx(case["loss"], rel=1e-6)


@pytest.mark.parametrize("case", SAID["vine"])
def test_step_advantages(case: dict[str, Any]):
    values = case["values"][: len(case["step_rewards"])]
    assert step_advantages(case["step_rewards"], values) == pytest.approx(case["advantages"])


def test_tree_nodes():
    x, y, z, leaf = 1, 2, 3, 9
    ids, rewards = [[x, leaf], [y, 4], [y, 5], [y, 6], [z, leaf]], torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])
    found = tree(rewards, ids, torch.zeros(5).long(), torch.ones(5, 2).bool()).tolist()
    names = [("x", "x"), ("y", "y1"), ("y", "y2"), ("y", "y3"), ("z", "z")]
    assert found == [pytest.approx([SAID["tree"][name] for name in row], abs=1e-6) for row in names]
