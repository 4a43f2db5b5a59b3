"""A plugin for tests: deterministic completions that depend on the prompt and the index in its group.

So two processes see the same global batch as one, whatever their random streams do.
"""

from __future__ import annotations

from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.builtin.models import scratch
from rlm_plugins.specs import Environment, EnvironmentSpec


def canned(
    prompts: Any, source_index: Any, tokenizer: Any, *, longest: int = 10, logprob: float = 0.0
) -> dict[str, Any]:
    """Return deterministic completions: digits that depend on prompt and source index, with a constant log-prob."""
    rows: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
    for prompt, number in zip(prompts, source_index, strict=True):
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        digits = str((sum(map(ord, text)) * 7919 + number * 104729) ** 2)[: 1 + (number * 5 + len(text)) % longest]
        answer = text.split("=")[0].split("+") if number % 3 == 0 else [digits]
        ids = tokenizer(f"<answer>{answer[-1][-3:]}</answer>" if number % 2 else digits, add_special_tokens=False)
        rows["prompt_ids"].append(tokenizer(text, add_special_tokens=False)["input_ids"])
        rows["completion_ids"].append([*ids["input_ids"], tokenizer.eos_token_id])
        rows["logprobs"].append([logprob] * (len(ids["input_ids"]) + 1))
    return rows


def digits(completions: list[str]) -> list[float]:
    """Return the number of digits 7, at most 8, in eighths."""
    return [min(text.count("7"), 8) / 8 for text in completions]


def coin(completions: list[str]) -> list[float]:
    """Return 0 or 1 by the characters, so that some completions of any policy are correct."""
    return [float(sum(map(ord, text)) % 2) for text in completions]


def some_coins(completions: list[str], prompts: Any) -> list[float]:
    """Return `coin` for two prompts of three, and 0 for the others."""
    tossed = zip(coin(completions), prompts, strict=True)
    return [x * (sum(map(ord, str(prompt))) % 3 > 0) for x, prompt in tossed]


def continued(
    prompts: Any, inputs: Any, completion_ids: Any, logprobs_of: Any, generate: Any, rewards_of: Any, mask: Any
) -> Any:
    """Return the reward minus that of the greedy continuation of the first half, plus 1 % of its probabilities."""
    halves = [ids[: len(ids) // 2] for ids in completion_ids]
    endings = generate(prompts, halves, greedy=True)
    found = rewards_of(prompts, [half + rest for half, rest in zip(halves, endings, strict=True)], inputs)
    sure = logprobs_of([[3]] * len(endings), endings).exp().sum(1)
    return rewards_of(prompts, completion_ids, inputs) - found + 0.01 * sure.to(mask.device)


class Talk(Environment):
    """An environment that replies with another number to each of three turns, and uses it as the reward."""

    turns = 3

    def reset(self, start: int) -> None:
        self.said = start

    def step(self, action: str) -> tuple[str, float, bool]:
        self.said = (self.said * 7 + sum(map(ord, action))) % 1000
        return f"{self.said}=?", self.said % 8 / 8, False


def talk() -> EnvironmentSpec:
    """Return prompts and the environment of short conversations."""
    rows = [{"prompt": [{"role": "user", "content": f"{n}+1=?"}], "start": n, "answer": str(n + 1)} for n in range(256)]
    return EnvironmentSpec(train=rows, environment=Talk)


def decided() -> Any:
    """Return a `scratch` model whose weights are 20 times as large, so that its distributions depend on the prompt."""
    spec = scratch(layers=1, hidden=16, heads=2, intermediate=32)
    spec.config.initializer_range *= 20
    return spec


@hookimpl
def rlm_models() -> dict[str, object]:
    return {"decided": decided}


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {"talk": talk}


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {"continued": continued}


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {"canned": canned}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"digits": digits, "coin": coin, "some_coins": some_coins}
