"""Loading of config, tokenizer and weights of a checkpoint, from a folder or the hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlm_plugins.data import hub
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.models.auto_class import auto_class, is_vision_language
from rlm_plugins.models.notice import CARD, WeightsNotice, notice_of
from rlm_plugins.specs import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
WHERE = "model"
"""Address in errors: the checkpoint may be `model`, `model.name` or `model.path`."""


class Checkpoint:
    """A model by path or hub name.

    Args:
        path: A folder, or a name on the hub.
        settings: Keyword arguments of every ``from_pretrained``; `trust_remote_code` is False by default.

    Raises:
        RecipeError: The folder does not exist, or holds no model.
    """

    def __init__(self, path: str, **settings: Any) -> None:
        self.path, self._settings = path, {"trust_remote_code": False, **settings}  # without it transformers asks
        self._local = hub.locate(path, where=WHERE)
        if self._local is not None:
            _require_model(self._local)

    def config(self) -> PretrainedConfig:
        """Load the config.

        Raises:
            RecipeError: It cannot be loaded, or names compiled code of the hub.
        """
        from transformers import AutoConfig

        config = self._load("config", AutoConfig.from_pretrained)
        if "/" in str(config._attn_implementation or ""):
            problem = f"the config of '{self.path}' runs compiled code of the hub: '{config._attn_implementation}'"
            raise RecipeError(problem, where=WHERE, hint="remove `attn_implementation` from its config.json")
        return config  # type: ignore[no-any-return]

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, padding on the left; a missing pad token is replaced by the end token."""
        from transformers import AutoTokenizer

        return with_pad_token(self._load("tokenizer", AutoTokenizer.from_pretrained, padding_side="left"), self.path)

    def processor(self) -> ProcessorMixin:
        """Load the processor of a vision-language model.

        Raises:
            RecipeError: The checkpoint has none.
        """
        from transformers import AutoProcessor

        processor = self._load("processor", AutoProcessor.from_pretrained, padding_side="left")
        if not hasattr(processor, "image_processor"):
            hint = "save the processor into the same folder as the model"
            raise RecipeError(f"the vision-language model '{self.path}' has no processor", where=WHERE, hint=hint)
        with_pad_token(processor.tokenizer, self.path)
        return processor  # type: ignore[no-any-return]

    def notice(self) -> WeightsNotice:
        """Return name, source and license of the weights, as the model card states them."""
        if self._local is not None:
            return notice_of(self._local / CARD, self._local.name)
        from huggingface_hub import hf_hub_download

        try:
            card = Path(hf_hub_download(self.path, CARD, revision=self._settings.get("revision")))
        except Exception:  # no card, or no connection: the weights may be in the cache without it
            card = None
        return replace(notice_of(card, self.path), source=f"https://huggingface.co/{self.path}")

    def model(self, **options: Any) -> PreTrainedModel:
        """Load the weights; `options` are passed to ``from_pretrained``."""
        return self._load("model", auto_class(self.config()).from_pretrained, **options)

    def _load(self, component: str, load: Callable[..., Any], **options: Any) -> Any:
        from safetensors import SafetensorError

        try:
            return load(str(self._local or self.path), **self._settings, **options)
        except (OSError, ValueError, ImportError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise RecipeError(
                f"the {component} of '{self.path}' cannot be loaded: {reason}",
                where=WHERE,
                hint=hub.advice(self._local),
            ) from None  # the message includes the cause; the traceback of the hub's client adds nothing


def with_pad_token(tokenizer: PreTrainedTokenizerBase, path: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer with a pad token, which is the end token if it has none.

    Raises:
        RecipeError: It has no vocabulary or no end token.
    """
    problem = f"the tokenizer of '{path}' has no"
    # without files transformers builds a tokenizer of special tokens only
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        hint = "save the tokenizer into the same folder as the model"
        raise RecipeError(f"{problem} vocabulary", where=WHERE, hint=hint)
    if tokenizer.eos_token_id is None:
        problem += " end token (eos_token): completions would never end"
        raise RecipeError(problem, where=WHERE, hint="set it in tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _require_model(local: Path) -> None:
    if not local.is_dir():
        raise RecipeError(
            f"expected a folder, got the file '{local}'",
            where=WHERE,
            allowed="a folder with a config.json, or a hub name",
            hint="`model: {name: gguf, path: …}`" if local.suffix == ".gguf" else "",
        )
    if (local / "config.json").is_file():
        return
    adapter = (local / "adapter_config.json").is_file()
    hint = "merge the adapter into its base first (peft: merge_and_unload)" if adapter else ""
    if files := sorted(file.name for file in local.glob("*.gguf")):
        hint = f"`model: {{name: gguf, path: …, gguf_file: {files[0]}}}`"
    raise RecipeError(
        f"the folder '{local}' holds {'a LoRA adapter, not a model' if adapter else 'no config.json'}",
        where=WHERE,
        allowed="a folder of save_pretrained, or a hub name",
        hint=hint,
    )


def model_spec(
    checkpoint: Any,
    dtype: Dtype,
    quantized: Any = None,
    attn_implementation: str | None = None,
    revision: str | None = None,
    *,
    runs_code: bool = False,
) -> ModelSpec:
    """Return the description of a checkpoint, which loads no weight by itself.

    Args:
        checkpoint: A :class:`Checkpoint`, or an object with its methods and ``path``.
        dtype: Type of the weights; "auto" is float32 on a machine without accelerator, where it is faster.
        quantized: Quantization of the weights, or None.
        attn_implementation: That of transformers, or None for its default.
        revision: Of the hub, for the origin.
        runs_code: True if Python code of the checkpoint is executed.
    """
    if dtype == "auto" and not torch.accelerator.is_available():
        dtype = "float32"
    weights: dict[str, Any] = {"dtype": dtype, **({"quantization_config": quantized} if quantized else {})}
    attention = {"attn_implementation": attn_implementation} if attn_implementation else {}
    config = checkpoint.config()
    for name, value in weights.items():  # the config describes the model before it is loaded
        setattr(config, name, getattr(config, name) if value == "auto" else value)
    return ModelSpec(
        config=config,
        tokenizer=checkpoint.tokenizer,
        load=lambda: checkpoint.model(**weights, **attention),
        origin=f"{checkpoint.path}@{revision}" if revision else checkpoint.path,
        notice=checkpoint.notice,
        processor=getattr(checkpoint, "processor", None) if is_vision_language(config) else None,
        runs_code=runs_code,
    )
