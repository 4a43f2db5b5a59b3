"""A trainer with a critic on the tiny model, for the tests of the critic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures_trainer
import tiny
import torch
from fixtures_trainer import weights

from rlm_plugins.equation.equation import Equation
from rlm_plugins.stage import Critic
from rlm_plugins.trainer import EquationTrainer

__all__ = ["KINDS", "LORA", "critic", "equation", "part", "rows", "trainer", "weights"]
KINDS = ("shared", "head", "separate")
LORA = {"r": 4, "lora_alpha": 8, "target_modules": tiny.ALL_LINEAR}


def part(hook: str, name: str, beta: float | None = None, **knobs: Any) -> Any:
    """Return a part of the registry, with its coefficient."""
    bound = fixtures_trainer.REGISTRY.find(hook, name).bind(knobs)
    return bound if beta is None else type(bound)(**{**vars(bound), "options": {"beta": beta}})


def equation(**changes: Any) -> Equation:
    """Return the equation of `ppo` without its KL."""
    slots = {
        "advantage": part("rlm_advantages", "gae"),
        "importance": part("rlm_importance", "token"),
        "policy_loss": part("rlm_policy_losses", "clip"),
        "penalties": [part("rlm_penalties", "value_loss", beta=1.0)],
        "aggregator": part("rlm_aggregators", "token_mean"),
    }
    return Equation(**{**slots, **changes})


def critic(kind: str = "shared", **changes: Any) -> Critic:
    return Critic(kind, **{"lora": LORA if kind == "shared" else None, "learning_rate": 1e-2, **changes})


def trainer(folder: Path, settings: Critic | None, symbols: Equation | None = None, **changes: Any) -> EquationTrainer:
    """Return a trainer with a critic. Twelve prompts make an epoch of three steps of four."""
    given = {"words": "processing_class", "model": "model", "lora": "peft_config"}
    pieces = {given[name]: changes.pop(name) for name in given if name in changes}
    return fixtures_trainer.trainer(
        folder,
        symbols or equation(),
        changes.pop("score", fixtures_trainer.eighths),
        changes.pop("problems", None) or tiny.problems(12),
        pieces={"critic": settings, **pieces},
        **{"per_device_train_batch_size": 16, **changes},
    )


def rows(equation_trainer: EquationTrainer) -> dict[str, torch.Tensor]:
    """Return two prompts with completions, in the format of TRL's dictionary."""
    ids = torch.randint(3, 20, (2, 9), generator=torch.Generator().manual_seed(0)).to(equation_trainer.model.device)
    there = torch.ones_like(ids)
    there[1, -2:] = 0
    prompts, answers = slice(0, 4), slice(4, 9)
    return {
        "prompt_ids": ids[:, prompts],
        "prompt_mask": there[:, prompts],
        "completion_ids": ids[:, answers],
        "completion_mask": there[:, answers],
    }
