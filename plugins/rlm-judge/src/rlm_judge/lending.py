"""A model that is lent to a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lent:
    """A model and its tokenizer.

    Args:
        model: A causal language model, perhaps with adapters.
        tokenizer: Its tokenizer.
    """

    model: Any
    tokenizer: Any
