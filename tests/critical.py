"""A trainer with a critic on the tiny world: what the tests of the critic share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import torch

from rlm_plugins.registry import Registry
from rlm_plugins.registry.parts import Part
from rlm_plugins.stage import Critic, Reward
from rlm_plugins.step import Equation
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.training.checkpoint import SaveWhenBufferIsEmpty
from rlm_plugins.training.groups import GRPOConfig
from rlm_plugins.training.judge import trl_reward

REGISTRY = Registry()
KINDS = ("shared", "head", "separate")
LORA = {"r": 4, "lora_alpha": 8, "target_modules": tiny.ALL_LINEAR}


def part(hook: str, name: str, beta: float | None = None, **knobs: Any) -> Any:
    """A part of the registry, and its coefficient."""
    bound = REGISTRY.find(hook, name).bind(knobs)
    return bound if beta is None else type(bound)(**{**vars(bound), "beside": {"beta": beta}})


def eighths(completions: list[str]) -> list[float]:
    """Differs between rows, exact in binary."""
    return [sum(map(ord, text)) % 8 / 8 for text in completions]


def equation(**changes: Any) -> Equation:
    """The row `ppo` without its KL."""
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


def trainer(folder: Path, said: Critic | None, made: Equation | None = None, **changes: Any) -> EquationTrainer:
    """Twelve problems, so that three steps of four are an epoch."""
    torch.set_num_threads(1)
    model = changes.pop("model", None) or tiny.model()
    lora = changes.pop("lora", tiny.lora())
    score, words = changes.pop("score", eighths), changes.pop("words", None) or tiny.tokenizer()
    problems = changes.pop("problems", None) or tiny.problems(12)
    args = GRPOConfig(**tiny.settings(**{"output_dir": str(folder), "per_device_train_batch_size": 16, **changes}))
    reward = Reward("score", Part("rlm_rewards", "score", "test", score).bind({}))
    found = EquationTrainer(
        equation=made or equation(),
        rewards=[reward],
        critic=said,
        order=REGISTRY.find("rlm_samplers", "shuffled").target,
        model=model,
        args=args,
        reward_funcs=[trl_reward(reward)],
        train_dataset=problems,
        processing_class=words,
        peft_config=lora,
    )
    micro = args.steps_per_generation * args.num_iterations
    found.add_callback(SaveWhenBufferIsEmpty(micro, args.gradient_accumulation_steps))
    return found


def weights(made: EquationTrainer) -> dict[str, torch.Tensor]:
    """Every weight of the trainer's model, the critic's adapter included where it shares the base."""
    return {name: x.detach().clone() for name, x in made.model.named_parameters()}


def rows(made: EquationTrainer) -> dict[str, torch.Tensor]:
    """Two questions with answers, as TRL's dictionary has them."""
    ids = torch.randint(3, 20, (2, 9), generator=torch.Generator().manual_seed(0)).to(made.model.device)
    there = torch.ones_like(ids)
    there[1, -2:] = 0
    prompts, answers = slice(0, 4), slice(4, 9)
    return {
        "prompt_ids": ids[:, prompts],
        "prompt_mask": there[:, prompts],
        "completion_ids": ids[:, answers],
        "completion_mask": there[:, answers],
    }
