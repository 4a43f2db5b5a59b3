"""A head with one output on the hidden states of a language model, for reward models of completions and of steps."""

from __future__ import annotations

import copy
from typing import Any

import torch

from rlm_plugins.errors import RecipeError


class ScoreHead(torch.nn.Linear):
    """h → w · h (+ b), in float32 for any trunk; initialized at zero."""

    def __init__(self, width: int, device: Any, bias: bool = False) -> None:
        super().__init__(width, 1, bias=bias, device=device, dtype=torch.float32)

    def reset_parameters(self) -> None:
        """Initialize with zeros, without using the RNG."""
        for x in self.parameters():
            torch.nn.init.zeros_(x)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the scores of hidden states, (…, H) → (…, 1)."""
        with torch.autocast(hidden.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return torch.nn.functional.linear(hidden.float(), self.weight.float(), bias)

    @classmethod
    def from_weights(cls, weight: torch.Tensor, bias: torch.Tensor | None, device: Any) -> ScoreHead:
        """Return a head with these weights."""
        head = cls(weight.shape[1], device, bias is not None).requires_grad_(False)
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
        return head


_QUANTIZATION = ("hf_quantizer", "quantization_method", "is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit")
"""Attributes of a quantized model."""


def with_head(model: Any, form: str = "SequenceClassification") -> Any:
    """Return a language model as transformers' classifier with one output in place of the language-model head.

    Args:
        model: Its trunk is shared, not copied.
        form: ``SequenceClassification`` or ``TokenClassification``.

    Raises:
        RecipeError: transformers has no such class for the model.
    """
    import transformers

    config = copy.deepcopy(model.config)
    config.num_labels = 1
    try:
        with torch.device("meta"):
            classifier = getattr(transformers, f"AutoModelFor{form}").from_config(config, dtype=model.dtype)
    except ValueError:
        classifier = None
    if type(getattr(classifier, "base_model", None)) is not type(model.base_model) or not hasattr(classifier, "score"):
        problem = f"transformers has no class for {form} of {type(model).__name__}"
        raise RecipeError(problem, where="model")
    setattr(classifier, classifier.base_model_prefix, model.base_model)
    bias = getattr(classifier.score, "bias", None) is not None
    classifier.score = ScoreHead(config.get_text_config().hidden_size, model.device, bias)
    for name in _QUANTIZATION:
        if hasattr(model, name):
            setattr(classifier, name, getattr(model, name))
    return classifier
