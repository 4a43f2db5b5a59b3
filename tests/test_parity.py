"""Parity with stock TRL: every logged number and every trained weight of short runs.

Rewards are multiples of 1/8 and batches powers of two, so that no rounding hides a difference: equality is to the
last bit. Where TRL and the house rules differ on purpose, `tests/test_vectors.py` explains it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry import Registry
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.options import TrainerOptions

REGISTRY = Registry()
LOGGED = ("loss", "grad_norm", "reward", "reward_std", "entropy", "learning_rate", "completions/mean_length")
AGGREGATOR = {
    "grpo": "sequence_mean",
    "bnpo": "micro_batch_token_mean",
    "dr_grpo": "fixed_length",
    "dapo": "token_mean",
    "luspo": "sequence_sum",
    "cispo": "token_mean",
    "sapo": "sequence_mean",
}


def eighths(completions: list[str], **kwargs: Any) -> list[float]:
    """Return rewards that differ between most completions and are exact in binary."""
    return [sum(map(ord, text)) % 8 / 8 for text in completions]


def length(completions: list[str], **kwargs: Any) -> list[float | None]:
    """Return None for texts of a length divisible by five."""
    return [None if len(text) % 5 == 0 else len(text) / 16 for text in completions]


def bind(hook: str, name: str, **knobs: Any) -> Any:
    return REGISTRY.find(hook, name).bind(knobs)


def surrogate(loss_type: str, clip: dict[str, Any]) -> Any:
    if loss_type == "sapo":
        return bind("rlm_policy_losses", "sapo")
    if loss_type == "cispo":
        return bind("rlm_policy_losses", "cispo", epsilon_high=clip.get("epsilon_high", 0.2) - 1)
    return bind("rlm_policy_losses", "clip", **clip)


def equation(loss_type: str, scale: str, level: str, beta: float, top_entropy: float = 1.0, **clip: Any) -> Equation:
    penalties = ()
    if beta:
        kl = bind("rlm_penalties", "kl", importance_weighted=True)
        penalties = (replace(kl, options={"beta": beta}),)
    return Equation(
        advantage=bind("rlm_advantages", "group_relative", scale=scale),
        importance=bind("rlm_importance", level),
        policy_loss=surrogate(loss_type, clip),
        token_weights=[bind("rlm_token_weights", "top_entropy", share=top_entropy)] if top_entropy < 1 else (),
        aggregator=bind("rlm_aggregators", AGGREGATOR[loss_type]),
        penalties=penalties,
    )


def train(trainer: GRPOTrainer) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    logs = [{k: line.get(f"trl/{k}", line[k]) for k in LOGGED if k in line} for line in lines]
    return logs, {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def compare(
    folder: Path, *, lora: bool = True, beta: float = 0.0, ours: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Train with stock TRL and with this library, and check that the weights are equal to the bit."""
    torch.set_num_threads(1)
    scale, level = changes.pop("scale_rewards", "group"), changes.pop("importance_sampling_level", "token")
    loss_type = changes.pop("loss_type")
    clip = {k: changes.pop(k) for k in ("epsilon", "epsilon_high", "delta") if k in changes}
    top_entropy = changes.pop("top_entropy_quantile", 1.0)
    shared = tiny.settings(output_dir=str(folder), reward_weights=[1.0, 0.5], **changes)

    def pieces() -> dict[str, Any]:
        model = tiny.model()
        if beta and not lora:
            model.save_pretrained(folder / "base")
            model.config._name_or_path = str(folder / "base")
        return {
            "model": model,
            "train_dataset": tiny.problems(),
            "processing_class": tiny.tokenizer(),
            "peft_config": tiny.lora() if lora else None,
        }

    stock_args = GRPOConfig(
        **shared,
        beta=beta,
        loss_type=loss_type,
        scale_rewards=scale,
        importance_sampling_level=level,
        top_entropy_quantile=top_entropy,
        **clip,
    )
    expected = train(GRPOTrainer(reward_funcs=[eighths, length], args=stock_args, **pieces()))
    rewards = [
        Reward(
            f.__name__, type(REGISTRY.find("rlm_rewards", "length"))("rlm_rewards", f.__name__, "test", f).bind({}), w
        )
        for f, w in ((eighths, 1.0), (length, 0.5))
    ]
    actual = train(
        EquationTrainer(
            TrainerOptions(
                equation=equation(loss_type, scale, level, beta, top_entropy, **clip),
                rewards=rewards,
                order=REGISTRY.find("rlm_samplers", "shuffled").target,
            ),
            reward_funcs=[trl_reward(reward) for reward in rewards],
            args=GRPOConfig(**shared, beta=1.0 if beta else 0.0),
            **pieces(),
        )
    )
    assert actual[0] == expected[0]
    start = dict(pieces()["model"].named_parameters())
    assert all(torch.equal(actual[1][name], weight) for name, weight in expected[1].items())
    moved = [n for n, w in expected[1].items() if "lora_B" in n or (not lora and not torch.equal(w, start[n]))]
    assert any(expected[1][name].abs().max() > 0 for name in moved), "nothing was trained: the comparison is empty"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss_type", "accumulation", "iterations", "beta"),
    [
        ("grpo", 1, 1, 0.04),
        ("grpo", 2, 2, 0.0),
        ("bnpo", 1, 2, 0.0),
        ("bnpo", 2, 1, 0.04),
        ("dr_grpo", 1, 1, 0.0),
        ("dr_grpo", 2, 2, 0.04),
        ("dapo", 1, 2, 0.04),
        ("dapo", 2, 1, 0.0),
        ("dapo", 2, 2, 0.04),
        ("luspo", 1, 1, 0.0),
        ("luspo", 2, 2, 0.04),
    ],
)
def test_loss_types(tmp_path: Path, loss_type: str, accumulation: int, iterations: int, beta: float) -> None:
    """Every value of one setting is combined with every value of each other one."""
    compare(
        tmp_path,
        loss_type=loss_type,
        gradient_accumulation_steps=accumulation,
        num_iterations=iterations,
        beta=beta,
        scale_rewards="none" if loss_type == "dr_grpo" else "group",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "level", "loss_type"),
    [
        ("group", "token", "grpo"),
        ("group", "sequence", "dapo"),
        ("batch", "token", "dapo"),
        ("batch", "sequence", "grpo"),
        ("none", "token", "grpo"),
        ("none", "sequence", "dapo"),
    ],
)
def test_scale_and_level(tmp_path: Path, loss_type: str, scale: str, level: str) -> None:
    compare(
        tmp_path, loss_type=loss_type, scale_rewards=scale, importance_sampling_level=level, num_iterations=2, beta=0.04
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"loss_type": "cispo", "epsilon_high": 5.0, "num_iterations": 2},
        {"loss_type": "dapo", "epsilon_high": 0.28, "num_iterations": 3},
        {"loss_type": "sapo", "num_iterations": 3, "beta": 0.04},
        {"loss_type": "sapo", "gradient_accumulation_steps": 2},
        {"loss_type": "dapo", "top_entropy_quantile": 0.2, "num_iterations": 2, "beta": 0.04},
        {"loss_type": "grpo", "top_entropy_quantile": 0.5},  # accumulated, TRL computes quantiles of micro-batches
        {"loss_type": "grpo", "epsilon": 0.05, "delta": 1.2, "num_iterations": 3},
        {"loss_type": "dapo", "gradient_accumulation_steps": 2, "steps_per_generation": 4},
        {"loss_type": "grpo", "gradient_accumulation_steps": 4, "steps_per_generation": 2, "beta": 0.04},
        {"loss_type": "dapo", "gradient_checkpointing": True, "beta": 0.04},
        {"loss_type": "grpo", "lora": False, "beta": 0.04, "num_iterations": 2},
        {"loss_type": "dapo", "lora": False, "gradient_accumulation_steps": 2},
        {"loss_type": "dapo", "mask_truncated_completions": True, "gradient_accumulation_steps": 2},
        {"loss_type": "dapo", "max_steps": 20, "per_device_train_batch_size": 16},  # into the second epoch
        {"loss_type": "dapo", "bf16": True, "num_iterations": 2},
    ],
    ids=lambda changes: "-".join(f"{k}={v}" for k, v in changes.items()),
)
def test_further_settings(tmp_path: Path, changes: dict[str, Any]) -> None:
    compare(tmp_path, **changes)
