"""Reads the pieces of a checkpoint, from a folder or the hub, and says in words what is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.data import hub
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

WHERE = "model.path"


class Checkpoint:
    """A model by path or name.

    Args:
        path: A folder, or a name on the hub.
        settings: Keyword arguments of every ``from_pretrained`` (``revision``, ``trust_remote_code``).

    Raises:
        RecipeError: There is no such folder, or no model in it.
    """

    def __init__(self, path: str, **settings: Any) -> None:
        self.path, self._settings = path, settings
        self._place = hub.locate(path, where=WHERE)
        if self._place is not None:
            _require_model(self._place)

    def config(self) -> PretrainedConfig:
        """Its config."""
        from transformers import AutoConfig

        return self._read("config", AutoConfig.from_pretrained)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer, padding on the left; without a pad token of its own it pads with the end token."""
        from transformers import AutoTokenizer

        tokenizer = self._read("tokenizer", AutoTokenizer.from_pretrained, padding_side="left")
        # without files transformers makes up a tokenizer that knows its special tokens and nothing else
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise self._unusable("has no vocabulary", "save the tokenizer into the same folder as the model")
        if tokenizer.eos_token_id is None:
            raise self._unusable(
                "has no end token (eos_token): completions would never end",
                "name it in tokenizer_config.json",
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    def _unusable(self, problem: str, hint: str) -> RecipeError:
        return RecipeError(f"the tokenizer of '{self.path}' {problem}", where=WHERE, hint=hint)

    def model(self, **how: Any) -> PreTrainedModel:
        """Its weights; `how` goes to ``from_pretrained``."""
        from transformers import AutoModelForCausalLM

        return self._read("model", AutoModelForCausalLM.from_pretrained, **how)

    def _read(self, what: str, read: Callable[..., Any], **how: Any) -> Any:
        from safetensors import SafetensorError

        try:
            return read(str(self._place or self.path), **self._settings, **how)
        except (OSError, ValueError, ImportError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise RecipeError(
                f"the {what} of '{self.path}' cannot be loaded: {reason}", where=WHERE, hint=hub.advice(self._place)
            ) from None  # its words are in ours; the stack of the hub's client helps nobody


def four_bit() -> Any:
    """The quantisation of QLoRA (arXiv 2305.14314): 4-bit NormalFloat, twice quantised, computing in bfloat16.

    Raises:
        RecipeError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise RecipeError(
            "4-bit weights need the package bitsandbytes, which is not installed",
            where="model.load_in_4bit",
            hint="pip install bitsandbytes",
        )
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _require_model(place: Path) -> None:
    if not place.is_dir():
        raise RecipeError(f"'{place}' is a file", where=WHERE, allowed="a folder with a config.json, or a hub name")
    if (place / "config.json").is_file():
        return
    adapter = (place / "adapter_config.json").is_file()
    raise RecipeError(
        f"the folder '{place}' holds {'a LoRA adapter, not a model' if adapter else 'no config.json'}",
        where=WHERE,
        allowed="a folder written by save_pretrained, or a hub name",
        hint="merge the adapter into its base first (peft: merge_and_unload)" if adapter else "",
    )
