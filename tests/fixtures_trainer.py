"""A trainer on the tiny model, built as a run builds it, for tests of whole runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import tiny
import torch
from datasets import Dataset

from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.rollout.prompt_source import order_of, prompt_source_for
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.checkpoint import SaveWhenBufferIsEmpty, checkpoints
from rlm_plugins.trainer.config import GRPOConfig
from rlm_plugins.trainer.options import TrainerOptions, observers_of_settings

REGISTRY = Registry()
OFTEN = {"save_strategy": "steps", "save_steps": 1}
"""A checkpoint after every step, or as soon as the buffer is empty."""


def eighths(completions: list[str]) -> list[float]:
    """Return rewards that differ between completions and are exact in binary."""
    return [sum(map(ord, text)) % 8 / 8 for text in completions]


def clipped(**changes: Any) -> Equation:
    """Return the equation of GRPO without its KL; `changes` fill other slots."""
    slots: dict[str, Any] = {
        "advantage": REGISTRY.find("rlm_advantages", "group_relative").bind({}),
        "importance": REGISTRY.find("rlm_importance", "token").bind({}),
        "policy_loss": REGISTRY.find("rlm_policy_losses", "clip").bind({}),
        "aggregator": REGISTRY.find("rlm_aggregators", "token_mean").bind({}),
    }
    return Equation(**slots | changes)


def trainer(
    folder: Path,
    equation: Equation | None = None,
    score: Callable[..., Any] = eighths,
    data: Dataset | None = None,
    sampler: Bound | None = None,
    pieces: Mapping[str, Any] | None = None,
    **settings: Any,
) -> EquationTrainer:
    """Return a trainer before its first step.

    Args:
        folder: Where its checkpoints go.
        equation: By default `clipped`.
        score: The reward, which goes by its own name.
        data: The problems.
        sampler: Who chooses among them.
        pieces: Further arguments of the trainer, or other ones than these; `speed` is the section of rlm-fast.
        **settings: Of GRPOConfig.
    """
    torch.set_num_threads(1)
    args = GRPOConfig(**tiny.settings(output_dir=str(folder), **settings))
    equation, data, pieces = equation or clipped(), tiny.problems() if data is None else data, dict(pieces or {})
    if "speed" in pieces:
        pieces["passes"] = pieces.pop("speed").passes
    order, name = order_of(sampler), score.__name__.lower()
    reward = Reward(name, Part("rlm_rewards", name, "test", score).bind({}))
    usual: dict[str, Any] = {
        "equation": equation,
        "rewards": [reward],
        "order": order,
        "prompt_source": prompt_source_for(sampler, equation.parts(), order, size=len(data), seed=args.seed),
        "model": pieces.get("model") or tiny.model(),  # one alone: to make it draws random numbers
        "args": args,
        "reward_funcs": [trl_reward(reward)],
        "train_dataset": data,
        "processing_class": tiny.tokenizer(),
        "peft_config": tiny.lora(),
    }
    usual["observers"] = observers_of_settings(args)
    usual |= pieces
    options = TrainerOptions(**{f.name: usual.pop(f.name) for f in fields(TrainerOptions) if f.name in usual})
    equation_trainer = EquationTrainer(options, **usual)
    equation_trainer.add_callback(SaveWhenBufferIsEmpty())
    return equation_trainer


def weights(equation_trainer: EquationTrainer) -> dict[str, torch.Tensor]:
    """Return a copy of every weight of the trainer's model."""
    return {name: p.detach().clone() for name, p in equation_trainer.model.named_parameters()}


def logged(equation_trainer: EquationTrainer, name: str) -> list[float]:
    """Return the logged values of `name`, one per step."""
    return [line[name] for line in equation_trainer.state.log_history if name in line]


def interrupted(
    folder: Path, steps: Sequence[int], make: Callable[[Path], EquationTrainer]
) -> tuple[EquationTrainer, dict[int, EquationTrainer]]:
    """Train without interruption and from each checkpoint, check that the weights agree, and return the trainers.

    Args:
        folder: To work in.
        steps: Where to go on: a checkpoint must have been written there.
        make: Makes the trainer, which saves `OFTEN`, for a folder.
    """
    whole, again = make(folder / "whole"), {}
    whole.train()
    end, saved = weights(whole), {int(path.name.split("-")[1]): path for path in checkpoints(folder / "whole")}
    for step in steps:
        again[step] = make(folder / f"from-{step}")
        again[step].train(resume_from_checkpoint=str(saved[step]))
        assert all(torch.equal(p, end[name]) for name, p in weights(again[step]).items()), step
    return whole, again
