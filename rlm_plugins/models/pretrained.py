"""Loading of a checkpoint from a folder or the hub: config, tokenizer, weights, their license and quantization."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlm_plugins.data import tables
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch, transformers
from rlm_plugins.specs import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin


def is_vision_language(config: Any) -> bool:
    """Return True if a config is that of a vision-language model."""
    if getattr(config, "vision_config", None) is None:
        return False
    return type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or bool(getattr(config, "auto_map", None))


def auto_class(config: Any) -> Any:
    """Return the class with ``from_pretrained`` and ``from_config`` for the model of a config."""
    return transformers.AutoModelForImageTextToText if is_vision_language(config) else transformers.AutoModelForCausalLM


def tokenizer_of(processing_class: Any) -> Any:
    """Return the tokenizer of a processor; a tokenizer is returned unchanged."""
    return getattr(processing_class, "tokenizer", processing_class)


def class_of_folder(folder: Path) -> Any:
    """Return the class that loads the model in a folder of ``save_pretrained``: that of its config, if known."""
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    name = (config.architectures or [""])[0]
    return getattr(transformers, name, None) or auto_class(config)


def loaded_processing_class(folder: Path, model: Any) -> Any:
    """Load the processor of a vision-language model from a folder, or the tokenizer of another model."""
    loader = transformers.AutoProcessor if is_vision_language(model.config) else transformers.AutoTokenizer
    return loader.from_pretrained(folder, trust_remote_code=False)


CARD = "README.md"


@dataclass(frozen=True)
class WeightsNotice:
    """Origin of weights; an empty source or license is unknown."""

    name: str
    source: str = ""
    license: str = ""

    def __str__(self) -> str:
        return f"{self.name}; license: {self.license or 'not stated'}; source: {self.source or 'not stated'}"


def front_matter(**facts: str) -> str:
    """Return the YAML header of a model card with the facts that are not empty.

    >>> front_matter(license="mit", base_model="")
    '---\\nlicense: "mit"\\n---\\n'
    """
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items() if value]
    return "\n".join(["---", *lines, "---", ""])


def notice_of(card: Path | None, name: str) -> WeightsNotice:
    """Return the notice of a model card; without a readable card, only the name."""
    from huggingface_hub import ModelCard

    data = None
    with suppress(Exception):  # a card is optional, and may be damaged
        data = ModelCard.load(card).data if card is not None else None
    base = getattr(data, "base_model", None) or ""
    source = ", ".join(base) if isinstance(base, list) else str(base)
    return WeightsNotice(
        str(getattr(data, "model_name", None) or name), source, str(getattr(data, "license", None) or "")
    )


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
        self._local = tables.locate(path, where=WHERE)
        if self._local is not None:
            _require_model(self._local)

    def config(self) -> PretrainedConfig:
        """Load the config."""
        config = self._load("config", transformers.AutoConfig.from_pretrained)
        if "/" in str(config._attn_implementation or ""):
            problem = f"the config of '{self.path}' runs compiled code of the hub: '{config._attn_implementation}'"
            raise RecipeError(problem, where=WHERE, hint="remove `attn_implementation` from its config.json")
        return config  # type: ignore[no-any-return]

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, padding on the left; a missing pad token is replaced by the end token."""
        tokenizer = self._load("tokenizer", transformers.AutoTokenizer.from_pretrained, padding_side="left")
        return with_pad_token(tokenizer, self.path)

    def processor(self) -> ProcessorMixin:
        """Load the processor of a vision-language model."""
        processor = self._load("processor", transformers.AutoProcessor.from_pretrained, padding_side="left")
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
        load = auto_class(self.config()).from_pretrained
        model, info = self._load("model", load, ignore_mismatched_sizes=True, output_loading_info=True, **options)
        for name, actual, expected in sorted(info["mismatched_keys"]):
            problem = f"expected '{name}' of shape {tuple(expected)} by config.json, got {tuple(actual)} in the weights"
            raise RecipeError(problem, where=f"{WHERE} '{self.path}'", hint="restore the config.json of these weights")
        return model  # type: ignore[no-any-return]

    def _load(self, component: str, load: Callable[..., Any], **options: Any) -> Any:
        from safetensors import SafetensorError

        try:
            return load(str(self._local or self.path), **self._settings, **options)
        except (OSError, ValueError, ImportError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise RecipeError(
                f"the {component} of '{self.path}' cannot be loaded: {reason}",
                where=WHERE,
                hint=tables.advice(self._local),
            ) from None  # the message includes the cause; the traceback of the hub's client adds nothing


def with_pad_token(tokenizer: PreTrainedTokenizerBase, path: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer with a pad token, which is the end token if it has none."""
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


PACKAGES = {
    "bitsandbytes_4bit": "bitsandbytes",
    "bitsandbytes_8bit": "bitsandbytes",
    "hqq": "hqq",
    "quanto": "optimum-quanto",
    "torchao": "torchao",
    "eetq": "eetq",
    "gptq": "gptqmodel",
    "awq": "gptqmodel",
}
"""Method → package on PyPI that it requires."""
_MODULES = {"optimum-quanto": "optimum.quanto"}
_WIDTH = {"bitsandbytes_4bit": {"load_in_4bit": True}, "bitsandbytes_8bit": {"load_in_8bit": True}}
"""Fields that the name of a method sets."""


def quantization_config(settings: Mapping[str, Any] | None, *, four_bits: bool) -> Any:
    """Return the quantization of the weights, or None.

    Raises:
        RecipeError: Unknown method or field, a wrong value, or its package is not installed.
    """
    if settings is None:
        return four_bit() if four_bits else None
    where = "model.quantization"
    if four_bits:
        raise RecipeError("`load_in_4bit` and `quantization` exclude each other", where=where, hint="keep one of them")
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KINDS

    method = str(settings.get("method") or "")
    fields = {name: value for name, value in settings.items() if name != "method"}
    if method not in KINDS:
        problem = f"unknown method {method!r}" if method else "the key 'method' is missing"
        allowed, hint = ", ".join(sorted(KINDS)), nearest(method, list(KINDS))
        raise RecipeError(problem, where=f"{where}.method", allowed=allowed, hint=hint)
    accepted = [p.name for p in inspect.signature(KINDS[method]).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name in fields:
        if name not in accepted:
            problem = f"unknown field '{name}' of transformers.{KINDS[method].__name__}"
            raise RecipeError(
                problem, where=f"{where}.{name}", allowed=", ".join(accepted), hint=nearest(name, accepted)
            )
    require(method, f"{where}.method")
    try:
        return KINDS[method](**_WIDTH.get(method, {}), **fields)
    except Exception as error:
        raise RecipeError(f"{KINDS[method].__name__} refuses: {error}", where=where) from None


def four_bit() -> Any:
    """Return the quantization of QLoRA (arXiv 2305.14314): 4-bit NormalFloat, double quantization, bfloat16 compute."""
    require("bitsandbytes_4bit", "model.load_in_4bit")
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def require(method: str, where: str) -> None:
    """Check that the package of a method is installed."""
    package = PACKAGES.get(method)
    if package is None or _is_installed(_MODULES.get(package, package)):
        return
    problem = f"`{where.rpartition('.')[2]}` requires the package {package}, which is not installed"
    raise RecipeError(problem, where=where, hint=f"pip install {package}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing too
        return False
