"""Check of demonstrations and gold answers against the longest completion of a trainer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

_LOG = logging.getLogger(__name__)
STREAMED, MEASURED, PIECE = 1000, 1024, 16
"""Examples of a stream that are checked; texts that are tokenized, the longest first; characters per token at most."""


def warn_of_long_texts(tokenizer: Any, rows: Any, limits: Mapping[str, int], where: str) -> None:
    """Log a warning for each column with texts that the policy cannot write within the limit.

    Args:
        tokenizer: Of the policy.
        rows: Training examples; of a stream, the first are checked.
        limits: Column → its longest text in tokens.
        where: Address of the environment.
    """
    examples = list(rows if hasattr(rows, "__len__") else islice(rows, STREAMED)) if limits else []
    for column, limit in limits.items():
        texts = [_text(example.get(column)) for example in examples]
        candidates = sorted((text for text in texts if len(text.encode()) > limit), key=len, reverse=True)[:MEASURED]
        lengths = [len(tokenizer(text[: PIECE * limit], add_special_tokens=False)["input_ids"]) for text in candidates]
        if too_long := [length for length in lengths if length > limit]:
            count = f"{len(too_long)} of {len(texts)} texts of the column '{column}' are longer than {limit} tokens"
            hint = f"the longest has {max(too_long)}: raise the limit of the trainer, or remove them"
            _LOG.warning("%s: %s and are cut\n  hint: %s", where, count, hint)


def _text(value: Any) -> str:
    """Return the text of a column: of several texts the longest, of messages their contents."""
    if isinstance(value, list | tuple):
        parts = [_text(part) for part in value]
        return "".join(parts) if value and isinstance(value[0], Mapping) else max(parts, key=len, default="")
    if isinstance(value, Mapping):
        return str(value.get("content") or "")
    return "" if value is None else str(value)
