"""The ingredients of a model made from nothing: a tokenizer of characters and tags, and a small config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlm_plugins.lazy import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

PAD, END, UNKNOWN, USER, ASSISTANT = SPECIAL = ("<|pad|>", "<|end|>", "<|unk|>", "<|user|>", "<|assistant|>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = "0123456789+-*=(),;? "

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|assistant|>' + m['content'] + '<|end|>' }}"
    "{% else %}{{ '<|user|>' + m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Turns follow each other without a separator, so a longer conversation always begins with the shorter one."""


def vocabulary(characters: str) -> dict[str, int]:
    """Token → id: special tokens, tags (one token each), then one token per character.

    >>> vocabulary("01")["<think>"], vocabulary("01")["1"]
    (5, 10)
    """
    tokens = dict.fromkeys((*SPECIAL, *TAGS, *characters))
    return {token: number for number, token in enumerate(tokens)}


def build_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """The tokenizer of `vocabulary`; what it does not know becomes ``<|unk|>``."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel(vocabulary(characters), unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("|".join((*TAGS, r"[\s\S]"))), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_config(architecture: str, characters: str, **sizes: Any) -> PretrainedConfig:
    """The config of a decoder with untied embeddings and full attention heads.

    Args:
        architecture: ``qwen3`` or ``llama``.
        characters: As for `vocabulary`.
        sizes: Fields of the config.
    """
    from transformers import AutoConfig

    ids = vocabulary(characters)
    return AutoConfig.for_model(
        architecture,
        vocab_size=len(ids),
        tie_word_embeddings=False,
        pad_token_id=ids[PAD],
        eos_token_id=ids[END],
        bos_token_id=None,
        **sizes,
    )


def build_model(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """Random float32 weights on the CPU, the same for one `seed`; nobody else's random numbers are used up."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
