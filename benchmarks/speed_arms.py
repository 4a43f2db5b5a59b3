"""The arms of `grpo_speed.py`: stock TRL, and ours with each set of optimizations, as data and as trainers.

They differ in nothing else: same weights, prompts, seeds and settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft import LoraConfig
from rlm_fast.speed import NO_SPEED, Speed
from speed_workloads import Workload
from speed_world import LORA, eighths, model, problems, tokenizer
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from rlm_plugins.equation.equation import Equation
from rlm_plugins.models.pretrained import four_bit as quantized
from rlm_plugins.recipe.trainer_settings import trainer_defaults
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.rollout.prompt_source import order_of, prompt_source_for
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.options import TrainerOptions

REGISTRY = Registry()
USUAL, FASTEST = "transformers", "fast"
OPTIONS = vars(NO_SPEED)
EIGHTHS = Reward("eighths", Part("rlm_rewards", "eighths", "benchmark", eighths).bind({}))


@dataclass(frozen=True)
class Arm:
    """A trainer and its settings.

    Args:
        speed: The optimizations of ours; None: stock TRL.
        generator: The generator of ours.
        checkpointing: Gradient checkpointing.
        other_rows: Use the workload's `other_rows` as micro-batch size.
        half: Weights and products in bfloat16.
        mixed: Autocast to bfloat16, which is the default of TRL.
        four_bit: The base is quantized, as in QLoRA.
        vllm: vLLM of TRL generates, in the same process, and sleeps during the update.
    """

    speed: Mapping[str, Any] | None = None
    generator: str = USUAL
    checkpointing: bool = False
    other_rows: bool = False
    half: bool = False
    mixed: bool = False
    four_bit: bool = False
    vllm: bool = False


VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_enable_sleep_mode": True,
    "vllm_gpu_memory_utilization": 0.3,
}
EVERY = vars(Speed())
"""All but the token limit, which trades memory for time."""
STOCK, OTHER, OURS, OFF = "stock", "stock, other rows", "ours", "ours, all off"
DEFAULT, SPARED = "stock, checkpointing", "ours, checkpointing"
BUDGET = "ours with max_tokens_per_micro_batch"
ARMS: dict[str, Arm] = {
    DEFAULT: Arm(checkpointing=True),
    STOCK: Arm(),
    OTHER: Arm(other_rows=True),
    OURS: Arm(EVERY, FASTEST),
    SPARED: Arm(EVERY, FASTEST, checkpointing=True),
    **{
        f"ours without {name}": Arm({**EVERY, name: off}, FASTEST)
        for name, off in OPTIONS.items()
        if EVERY[name] != off
    },
    f"ours without {FASTEST}": Arm(EVERY),
    BUDGET: Arm({**EVERY, "max_tokens_per_micro_batch": "auto"}, FASTEST),
    OFF: Arm(OPTIONS),
}
"""TRL enables gradient checkpointing by default. `stock` is tuned: without it, and with the better of two micro-batch
sizes. Ours is tuned by a token limit, which allows larger micro-batches."""


def build(workload: Workload, arm: Arm, folder: str, reward: Reward = EIGHTHS) -> Any:
    """Return the trainer of an arm, not yet started; ours takes any reward."""
    rows = workload.other_rows if arm.other_rows else workload.rows
    settings: dict[str, Any] = {
        **trainer_defaults(),
        "output_dir": folder,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": workload.rows * workload.accumulation // rows,
        "num_generations": workload.generations,
        "num_iterations": workload.iterations,
        "max_completion_length": workload.completion,
        "gradient_checkpointing": arm.checkpointing,
        "max_steps": workload.warm_up + workload.steps,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "shuffle_dataset": False,
        "seed": 1,
        "bf16": arm.mixed,
        **(VLLM if arm.vllm else {}),
    }
    base = model(workload)
    base = base.to(torch.bfloat16) if arm.half else base
    if arm.four_bit or arm.vllm:
        base = _reloaded(base, tokenizer(workload), f"{folder}/base", four_bit=arm.four_bit)
    pieces: dict[str, Any] = {
        "model": base,
        "train_dataset": problems(workload),
        "processing_class": tokenizer(workload),
        "peft_config": LoraConfig(task_type="CAUSAL_LM", **LORA),
    }
    made = _stock(workload, settings, pieces) if arm.speed is None else _ours(workload, arm, reward, settings, pieces)
    made.remove_callback(PrinterCallback)
    return made


def _reloaded(base: Any, words: Any, folder: str, *, four_bit: bool) -> Any:
    """Return a model from its folder: quantized, or where vLLM finds it too."""
    base.save_pretrained(folder)
    words.save_pretrained(folder)
    options = {"quantization_config": quantized(), "device_map": 0} if four_bit else {}
    return type(base).from_pretrained(folder, dtype=base.dtype, **options)


def _stock(workload: Workload, settings: dict[str, Any], pieces: dict[str, Any]) -> Any:
    def reward(**columns: Any) -> list[float]:
        return eighths(columns["completion_ids"], columns["dead"])

    return GRPOTrainer(
        args=GRPOConfig(**settings, beta=workload.beta, loss_type="dapo"), reward_funcs=[reward], **pieces
    )


def _ours(workload: Workload, arm: Arm, reward: Reward, settings: dict[str, Any], pieces: dict[str, Any]) -> Any:
    """Return the trainer with the same equation, made of our parts."""
    made, size = _equation(workload.beta), len(pieces["train_dataset"])
    order = order_of(None, shuffle=False)
    options = TrainerOptions(
        equation=made,
        rewards=[reward],
        order=order,
        generator=REGISTRY.find("rlm_generators", arm.generator).bind({}),
        passes=replace(NO_SPEED, **(arm.speed or {})).passes,
        prompt_source=prompt_source_for(None, made.parts(), order, size=size, seed=settings["seed"]),
    )
    return EquationTrainer(
        options,
        args=GRPOConfig(**settings, beta=float(workload.beta > 0)),
        reward_funcs=[trl_reward(reward)],
        **pieces,
    )


def _equation(beta: float) -> Equation:
    def part(hook: str, name: str, **knobs: Any) -> Any:
        return REGISTRY.find(hook, name).bind(knobs)

    kl = part("rlm_penalties", "kl", importance_weighted=True)
    return Equation(
        advantage=part("rlm_advantages", "group_relative"),
        importance=part("rlm_importance", "token"),
        policy_loss=part("rlm_policy_losses", "clip"),
        aggregator=part("rlm_aggregators", "token_mean"),
        penalties=[replace(kl, options={"beta": beta})] if beta else [],
    )
