"""How long a row may be before a model reads its tokens otherwise because of that.

Some rotary angles change for all tokens once one position is large ("dynamic", "longrope"): then a row is read as the
longest one beside it demands, so that it matters who stands there. Others bend the attention of tokens that stand far
from the start. No trial on short rows sees any of it.
"""

from __future__ import annotations

from typing import Any


def reach(config: Any) -> int | None:
    """Longest row (tokens) that is read the same whoever stands beside it, as transformers has it; None: any.

    Args:
        config: Of a text model. Its `rope_parameters` may be one set, or one for each type of layer.
    """
    said = getattr(config, "rope_parameters", None) or {}
    each = [said] if "rope_type" in said else [x for x in said.values() if isinstance(x, dict)]
    return min((x for x in (_of(rope, config) for rope in each) if x is not None), default=None)


def _of(rope: dict[str, Any], config: Any) -> int | None:
    kind = rope.get("rope_type") or ""
    if kind == "longrope" or rope.get("llama_4_scaling_beta"):
        return rope.get("original_max_position_embeddings") or config.max_position_embeddings  # type: ignore[no-any-return]
    return config.max_position_embeddings if "dynamic" in kind else None  # type: ignore[no-any-return]
