"""Reading a packed layout through the model's own forward, so that whatever wraps the model stays in charge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.speed.head import read_head
from rlm_plugins.speed.layout import Layout


def read(
    model: Any, layout: Layout, *, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Log-probability and entropy (nats, float32) of what the layout asks for.

    Args:
        model: A causal language model in which `attention.install` was called; it may be wrapped (PEFT, DDP).
        layout: The rows.
        temperature: Logits are divided by it.
        entropy_gradient: Whether the entropy carries a gradient.
    """
    with _reading_head(model, layout, temperature, entropy_gradient):
        found = model(**inputs_of(layout), logits_to_keep=layout.read).logits
    logp, entropy = found.squeeze(0).unbind(-1)
    return logp, entropy


@contextmanager
def _reading_head(model: Any, layout: Layout, temperature: float, entropy_gradient: bool) -> Iterator[None]:
    """While it lasts, the language head gives log-probabilities and entropies in place of logits."""
    head = causal_model(model).get_output_embeddings()

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        logp, entropy = read_head(
            hidden.squeeze(0),
            head.weight,
            head.bias,
            layout.target,
            temperature=temperature,
            entropy_gradient=entropy_gradient,
        )
        return torch.stack([logp, entropy], -1).unsqueeze(0)

    head.forward = forward
    try:
        yield
    finally:
        del head.forward


def inputs_of(layout: Layout) -> dict[str, Any]:
    """What a transformers model is called with. A mask in four dimensions tells it to make none of its own."""
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids.device)
    where = {"position_ids": layout.positions, "attention_mask": no_mask, "layout": layout}
    return {"input_ids": layout.ids, **where, "use_cache": False}


def causal_model(model: Any) -> Any:
    """The transformers model within its wrappers."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model
