"""A model and data small enough to train in a test: tokens are letters, with a few thousand weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tokenizer(characters: str = "0123456789+=abcdefgh") -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per character."""
    vocabulary = {t: i for i, t in enumerate(["<pad>", "<end>", "<unk>", *characters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="left"
    )


def model(seed: int = 3, words: int = len(tokenizer())) -> Qwen3ForCausalLM:
    """Return a Qwen3 model with two layers of 32 and random weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=words,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def problems(count: int = 64) -> Dataset:
    """Return sums of two digits."""
    pairs = [(i % 10, (i * 7 + 3) % 10) for i in range(count)]
    return Dataset.from_dict({"prompt": [f"{a}+{b}=" for a, b in pairs], "answer": [str(a + b) for a, b in pairs]})


def lora(rank: int = 8) -> LoraConfig:
    """Return a LoRA config for every linear layer."""
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=ALL_LINEAR, task_type="CAUSAL_LM")


def settings(**changes: Any) -> dict[str, Any]:
    """Return the GRPOConfig fields of a run of a few seconds."""
    return {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 12,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": 5,
        **changes,
    }


def recipe(model: Mapping[str, Any] | None = None, **trainer: Any) -> dict[str, Any]:
    """Return a recipe of one stage that trains within a second; `model` and `trainer` change its sections."""
    sizes = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 3}
    return {
        "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16, **(model or {})},
        "environment": {"name": "addition", "digits": 1, "test_rows": 0},
        "rewards": ["accuracy"],
        "algorithm": "grpo",
        "trainer": {**sizes, **trainer},
    }
