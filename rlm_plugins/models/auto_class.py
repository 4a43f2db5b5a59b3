"""The class of transformers that loads a model: of language alone, or of images and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def is_vision_language(config: Any) -> bool:
    """Return True if a config is that of a vision-language model.

    Args:
        config: A config of transformers.
    """
    if getattr(config, "vision_config", None) is None:
        return False
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    return type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or bool(getattr(config, "auto_map", None))


def auto_class(config: Any) -> Any:
    """Return the class with ``from_pretrained`` and ``from_config`` for the model of a config."""
    import transformers

    return transformers.AutoModelForImageTextToText if is_vision_language(config) else transformers.AutoModelForCausalLM


def tokenizer_of(processing_class: Any) -> Any:
    """Return the tokenizer of a processor; a tokenizer is returned unchanged."""
    return getattr(processing_class, "tokenizer", processing_class)


def class_of_folder(folder: Path) -> Any:
    """Return the class that loads the model in a folder of ``save_pretrained``: that of its config, if known."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    name = (config.architectures or [""])[0]
    return getattr(transformers, name, None) or auto_class(config)


def loaded_processing_class(folder: Path, model: Any) -> Any:
    """Load the processor of a vision-language model from a folder, or the tokenizer of another model."""
    from transformers import AutoProcessor, AutoTokenizer

    loader = AutoProcessor if is_vision_language(model.config) else AutoTokenizer
    return loader.from_pretrained(folder, trust_remote_code=False)
