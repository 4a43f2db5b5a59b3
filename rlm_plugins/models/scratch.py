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


TOOL, CALL, CALLED = TOOL_TAGS = ("<|tool|>", "<call>", "</call>")
TOOL_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|assistant|>' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{% set f = call['function'] or call %}{{ '<call>' + f['name'] }}"
    "{% for name, value in f['arguments'].items() %}{{ ' ' + name + '=' + value|string }}{% endfor %}{{ '</call>' }}"
    "{% endfor %}{{ '<|end|>' }}{% elif m['role'] == 'tool' %}{{ '<|tool|>' + m['content'] }}"
    "{% else %}{{ '<|user|>' + m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The same with tools: a call is ``<call>times a=3 b=4</call>``. Which tools there are it does not say."""
TOOL_RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": ASSISTANT,
    "fields": {
        "tool_calls": {
            "open_pattern": r"<call>(?P<name>\w+) ?",
            "close": CALLED,
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"(?P<key>\w+)=(?P<value>[^ ]*)", "value_parser": {"name": "text"}},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close": END, "content": "text"},
    },
}
"""How transformers reads such a call; the annotations of the tool give its arguments their types."""


def vocabulary(characters: str, tools: bool = False) -> dict[str, int]:
    """Token → id: special tokens, tags (one token each), then one token per character, then the tags of tools.

    >>> vocabulary("01")["<think>"], vocabulary("01")["1"], vocabulary("01", tools=True)["<call>"]
    (5, 10, 12)
    """
    tokens = dict.fromkeys((*SPECIAL, *TAGS, *characters, *(TOOL_TAGS if tools else ())))
    return {token: number for number, token in enumerate(tokens)}


def build_tokenizer(characters: str, tools: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer of `vocabulary`; what it does not know becomes ``<|unk|>``."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel(vocabulary(characters, tools), unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(
        Regex("|".join((*TAGS, *TOOL_TAGS[1:], r"[\s\S]") if tools else (*TAGS, r"[\s\S]"))), behavior="isolated"
    )
    core.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT, *([TOOL] if tools else [])],
        padding_side="left",
        chat_template=TOOL_TEMPLATE if tools else CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    if tools:
        made.response_template = TOOL_RESPONSE
    return made


def build_config(architecture: str, characters: str, tools: bool = False, **sizes: Any) -> PretrainedConfig:
    """The config of a decoder with untied embeddings and full attention heads.

    Args:
        architecture: ``qwen3`` or ``llama``.
        characters, tools: As for `vocabulary`.
        sizes: Fields of the config.
    """
    from transformers import AutoConfig

    ids = vocabulary(characters, tools)
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
