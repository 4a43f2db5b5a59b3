"""Environments with observations, small enough for the tiny model, for tests of several turns."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from rlm_plugins.models.scratch import build_config, build_model, build_tokenizer
from rlm_plugins.specs import Environment, EnvironmentSpec

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz+= "


class Sums(Environment):
    """Environment with three sums in turn, independent of the answers; the reward counts digits."""

    turns = 3

    def reset(self, secret: int) -> str:
        self.asked = secret
        return f"{secret}+0="

    def step(self, action: str) -> tuple[str, float, bool]:
        self.asked += 1
        return f"{self.asked}+1=", float(action[:1].isdigit()), False


class Multiplies:
    """Tools in TRL's form, without our base class."""

    def reset(self, **columns: Any) -> str:
        self.seen: list[tuple[int, int]] = []
        return f" {columns['secret']}"

    def times(self, a: int, b: int) -> int:
        """Return the product.

        Args:
            a: One factor.
            b: The other one.
        """
        self.seen.append((a, b))
        return a * b

    def get_reward(self) -> float:
        return float(len(self.seen))


def rows(count: int = 16, chat: bool = False) -> Dataset:
    """Return a data set of prompts with a secret digit; with `chat` the prompt is a conversation."""
    prompts: list[Any] = [f"a{i % 10}" for i in range(count)]
    if chat:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return Dataset.from_dict({"prompt": prompts, "secret": [i % 10 for i in range(count)]})


def environment_spec(environment: Any = Sums, **changes: Any) -> EnvironmentSpec:
    data = rows(**changes)
    return EnvironmentSpec(train=data, test=list(data), environment=environment)


def scratch(tools: bool = False, seed: int = 0) -> tuple[Any, Any]:
    """Return a model with random weights and its tokenizer with a chat template."""
    sizes = {"hidden_size": 32, "head_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = build_config(
        "qwen3", LETTERS, tools, **sizes, num_key_value_heads=2, intermediate_size=64, max_position_embeddings=256
    )
    return build_model(config, seed), build_tokenizer(LETTERS, tools)
