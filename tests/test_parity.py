"""Parity with stock TRL: every logged number and every trained weight of short runs of the drop-in trainer.

Rewards are multiples of 1/8 and batches powers of two, so that no rounding hides a difference: equality is to the
last bit. Where TRL and the house rules differ on purpose, `tests/test_vectors.py` explains it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import trl
from test_trl_trainers import eighths, logged, trained, trainer_of_kind, weights

from rlm_plugins import GRPOTrainer

EXACT = ("loss", "grad_norm", "reward", "reward_std", "learning_rate", "completions/mean_length", "kl", "entropy_coef")
ROUNDED = ("entropy", "vespo/phi_seq_mean", "clip_ratio/low_mean", "clip_ratio/region_mean", "clip_ratio/high_max")
PIECES = {"gradient_accumulation_steps": 2}
TWICE = {"num_iterations": 2}
KL = {"beta": 0.04}
SEQUENCE = {"importance_sampling_level": "sequence"}
CASES: list[dict[str, Any]] = [
    {"loss_type": "grpo", **KL},
    {"loss_type": "grpo", **PIECES, **TWICE},
    {"loss_type": "bnpo", **PIECES, **KL},
    {"loss_type": "dr_grpo", "scale_rewards": "none", **PIECES, **TWICE, **KL},
    {"loss_type": "dapo", **PIECES, **TWICE, **KL},
    {"loss_type": "luspo", **SEQUENCE, **PIECES, **TWICE, **KL},
    {"loss_type": "cispo", "epsilon_high": 5.0, **TWICE},
    {"loss_type": "sapo", "num_iterations": 3, **KL},
    {"loss_type": "vespo", **TWICE},
    {"loss_type": "grpo", **SEQUENCE, "scale_rewards": "batch", **TWICE, **KL},
    {"loss_type": "dapo", "scale_rewards": "batch", "epsilon_high": 0.28, "num_iterations": 3},
    {"loss_type": "dapo", "top_entropy_quantile": 0.2, **TWICE, **KL},
    {"loss_type": "grpo", "epsilon": 0.05, "delta": 1.2, "num_iterations": 3},
    {"loss_type": "grpo", "gradient_accumulation_steps": 4, "steps_per_generation": 2, **KL},
    {"loss_type": "grpo", "lora": False, **TWICE, **KL},
    {"loss_type": "dapo", "mask_truncated_completions": True, **PIECES},
    {"loss_type": "dapo", "bf16": True, **TWICE},
    {"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False, **TWICE},
    {"entropy_coef": 0.1, **PIECES},
    {"off_policy_mask_threshold": 0.0, "num_iterations": 3},
    {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0], "max_steps": 2},
]
RARE: list[dict[str, Any]] = [
    {"loss_type": "bnpo", **TWICE},
    {"loss_type": "dr_grpo", "scale_rewards": "none"},
    {"loss_type": "luspo"},
    {"loss_type": "dapo", **SEQUENCE, **TWICE, **KL},
    {"loss_type": "dapo", **SEQUENCE, "scale_rewards": "none", **TWICE, **KL},
    {"loss_type": "grpo", "scale_rewards": "none", **TWICE, **KL},
    {"loss_type": "grpo", "top_entropy_quantile": 0.5},  # accumulated, TRL computes quantiles of micro-batches
    {"loss_type": "sapo", **PIECES},
    {"loss_type": "dapo", **PIECES, "steps_per_generation": 4},
    {"loss_type": "dapo", "gradient_checkpointing": True, **KL},
    {"loss_type": "dapo", "lora": False, **PIECES},
    {"loss_type": "dapo", "max_steps": 20, "per_device_train_batch_size": 16},  # into the second epoch
    {"loss_type": "dr_grpo", "entropy_coef": 0.1},
    {"mask_truncated_completions": True, "delta": 1.5},
]


def length(completions: list[str], **kwargs: Any) -> list[float | None]:
    """Return None for texts of a length divisible by five."""
    return [None if len(text) % 5 == 0 else len(text) / 16 for text in completions]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [*CASES, *(pytest.param(each, marks=pytest.mark.full) for each in RARE)], ids=repr)
def test_grpo_has_the_weights_of_trl_bit_for_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Every value of one setting is combined with every value of each other one."""
    lora = changes.get("lora", True)
    settings = {"max_steps": 4, "reward_weights": [1.0, 0.5], **{k: x for k, x in changes.items() if k != "lora"}}

    def pieces() -> dict[str, Any]:
        model = tiny.model()
        model.save_pretrained(tmp_path / "base")
        model.config._name_or_path = str(tmp_path / "base")  # where the reference is loaded from
        rewards = [eighths, length][: len(settings["reward_weights"])]
        return {"reward_funcs": rewards, "model": model, **({} if lora else {"peft_config": None})}

    stock = trainer_of_kind(trl.GRPOTrainer, tmp_path / "stock", pieces(), **settings)
    before = weights(stock).clone()
    stock.train()
    ours = trained(GRPOTrainer, tmp_path / "ours", {"speed": "none", **pieces()}, **settings)
    assert torch.equal(weights(ours), weights(stock))
    assert not torch.equal(weights(ours), before), "nothing was trained: the comparison is empty"
    for name in EXACT:
        assert (logged(ours, f"trl/{name}") or logged(ours, name)) == logged(stock, name), name
    for name in ROUNDED:
        ours_as_trl = logged(ours, f"trl/{name}") or logged(ours, name)
        assert ours_as_trl == pytest.approx(logged(stock, name), abs=1e-6), name
    if not changes.get("gradient_accumulation_steps"):  # TRL's dapo logs a share
        assert logged(ours, "policy_loss") == pytest.approx(logged(stock, "policy_loss"), abs=1e-6)
