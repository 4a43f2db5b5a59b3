"""A handle of the model and tokenizer that a judge generates with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelHandle:
    """A model and its tokenizer.

    Args:
        model: A causal language model, possibly with adapters.
        tokenizer: Its tokenizer.
    """

    model: Any
    tokenizer: Any
