"""Loading of config, tokenizer and weights of a checkpoint, from a folder or the hub."""

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
    """A model by path or hub name.

    Args:
        path: A folder, or a name on the hub.
        settings: Keyword arguments of every ``from_pretrained`` (``revision``, ``trust_remote_code``).

    Raises:
        RecipeError: The folder does not exist, or holds no model.
    """

    def __init__(self, path: str, **settings: Any) -> None:
        self.path, self._settings = path, settings
        self._local = hub.locate(path, where=WHERE)
        if self._local is not None:
            _require_model(self._local)

    def config(self) -> PretrainedConfig:
        """Load the config."""
        from transformers import AutoConfig

        return self._load("config", AutoConfig.from_pretrained)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, padding on the left; a missing pad token is replaced by the end token."""
        from transformers import AutoTokenizer

        tokenizer = self._load("tokenizer", AutoTokenizer.from_pretrained, padding_side="left")
        # without files transformers builds a tokenizer of special tokens only
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise self._unusable("has no vocabulary", "save the tokenizer into the same folder as the model")
        if tokenizer.eos_token_id is None:
            raise self._unusable(
                "has no end token (eos_token): completions would never end",
                "set it in tokenizer_config.json",
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    def _unusable(self, problem: str, hint: str) -> RecipeError:
        return RecipeError(f"the tokenizer of '{self.path}' {problem}", where=WHERE, hint=hint)

    def model(self, **how: Any) -> PreTrainedModel:
        """Load the weights; `how` is passed to ``from_pretrained``."""
        from transformers import AutoModelForCausalLM

        return self._load("model", AutoModelForCausalLM.from_pretrained, **how)

    def _load(self, what: str, load: Callable[..., Any], **how: Any) -> Any:
        from safetensors import SafetensorError

        try:
            return load(str(self._local or self.path), **self._settings, **how)
        except (OSError, ValueError, ImportError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise RecipeError(
                f"the {what} of '{self.path}' cannot be loaded: {reason}", where=WHERE, hint=hub.advice(self._local)
            ) from None  # the message includes the cause; the traceback of the hub's client adds nothing


def four_bit() -> Any:
    """Return the quantization of QLoRA (arXiv 2305.14314): 4-bit NormalFloat, double quantization, bfloat16 compute.

    Raises:
        RecipeError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise RecipeError(
            "`load_in_4bit` requires the package bitsandbytes, which is not installed",
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


def _require_model(local: Path) -> None:
    if not local.is_dir():
        raise RecipeError(
            f"expected a folder, got the file '{local}'",
            where=WHERE,
            allowed="a folder with a config.json, or a hub name",
        )
    if (local / "config.json").is_file():
        return
    adapter = (local / "adapter_config.json").is_file()
    raise RecipeError(
        f"the folder '{local}' holds {'a LoRA adapter, not a model' if adapter else 'no config.json'}",
        where=WHERE,
        allowed="a folder of save_pretrained, or a hub name",
        hint="merge the adapter into its base first (peft: merge_and_unload)" if adapter else "",
    )
