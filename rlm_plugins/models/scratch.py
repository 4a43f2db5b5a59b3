"""Models without a checkpoint: initialized from scratch, or on the meta device, where weights have no memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import peft, torch, transformers
from rlm_plugins.models.pretrained import auto_class
from rlm_plugins.recipe.trainer_settings import adapter_config

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
"""Turns are joined without a separator, so a longer conversation always begins with the shorter one."""


TOOL, CALL, CALLED = TOOL_TAGS = ("<|tool|>", "<call>", "</call>")
TOOL_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|assistant|>' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{% set f = call['function'] or call %}{{ '<call>' + f['name'] }}"
    "{% for name, value in f['arguments'].items() %}{{ ' ' + name + '=' + value|string }}{% endfor %}{{ '</call>' }}"
    "{% endfor %}{{ '<|end|>' }}{% elif m['role'] == 'tool' %}{{ '<|tool|>' + m['content'] }}"
    "{% else %}{{ '<|user|>' + m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""A chat template with tool calls, as ``<call>times a=3 b=4</call>``; it does not list the tools."""
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
"""Transformers' response template of such a call; the tool's annotations give its arguments their types."""


def vocabulary(characters: str, tools: bool = False) -> dict[str, int]:
    """Return token → id: special tokens, tags (one token each), one token per character, then the tags of tools.

    >>> vocabulary("01")["<think>"], vocabulary("01")["1"], vocabulary("01", tools=True)["<call>"]
    (5, 10, 12)
    """
    tokens = dict.fromkeys((*SPECIAL, *TAGS, *characters, *(TOOL_TAGS if tools else ())))
    return {token: number for number, token in enumerate(tokens)}


def build_tokenizer(characters: str, tools: bool = False) -> PreTrainedTokenizerFast:
    """Build the tokenizer of `vocabulary`; unknown characters become ``<|unk|>``."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.WordLevel(vocabulary(characters, tools), unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(
        Regex("|".join((*TAGS, *TOOL_TAGS[1:], r"[\s\S]") if tools else (*TAGS, r"[\s\S]"))), behavior="isolated"
    )
    core.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
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
        tokenizer.response_template = TOOL_RESPONSE
    return tokenizer


def build_config(architecture: str, characters: str, tools: bool = False, **sizes: Any) -> PretrainedConfig:
    """Build the config of a decoder with untied embeddings and full attention heads."""
    ids = vocabulary(characters, tools)
    return transformers.AutoConfig.for_model(
        architecture,
        vocab_size=len(ids),
        tie_word_embeddings=False,
        pad_token_id=ids[PAD],
        eos_token_id=ids[END],
        bos_token_id=None,
        **sizes,
    )


def build_model(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """Initialize float32 weights on the CPU from `seed`; the global RNG state is unchanged."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def skeleton(config: PretrainedConfig, lora: Mapping[str, Any] | None, where: str = "model.lora") -> torch.nn.Module:
    """Build a model with its adapters on the meta device.

    Raises:
        RecipeError: PEFT rejects the adapter, or TRL does not support it.
    """
    with torch.device("meta"):
        model = auto_class(config).from_config(config, dtype=getattr(config, "dtype", None) or torch.float32)
        return model if lora is None else _adapted(model, lora, where)


def _adapted(model: Any, lora: Mapping[str, Any], where: str) -> torch.nn.Module:
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = sorted({name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
    try:
        adapted = peft.get_peft_model(model, adapter_config(lora))
    except (ValueError, TypeError, KeyError, ImportError) as error:  # target modules that the model lacks, say
        raise RecipeError(f"PEFT rejects the adapter: {error}", where=where, allowed=", ".join(layers)) from None
    if isinstance(adapted.get_output_embeddings(), BaseTunerLayer):
        raise RecipeError(
            "TRL does not support an adapter on the language head, whose weight it uses directly",
            where=f"{where}.target_modules",
            hint="leave it out; `modules_to_save: [lm_head]` trains all of it",
        )
    return adapted


def trained_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of the trained weights."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
