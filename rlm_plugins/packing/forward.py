"""Reading a packed layout through the model's own forward, so that whatever wraps the model stays in charge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.kernels.fused_logprob_head import read_head
from rlm_plugins.packing.layout import Layout

Head = Callable[..., tuple[torch.Tensor, ...]]
"""(hidden states (N, H), weight (V, H), bias (V,) or None) → several (N,)."""


def read(
    model: Any,
    layout: Layout,
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    entropy_gradient: bool = False,
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Log-probability and entropy (nats, float32) of what the layout asks for.

    Args:
        model: A causal language model in which `attention.install` was called; it may be wrapped (PEFT, DDP).
        layout: The rows.
        temperature: Logits are divided by it.
        with_entropy: Whether the entropy is asked for; else it is 0.
        entropy_gradient: Whether the entropy carries a gradient.
    """
    head = partial(
        read_head,
        target=layout.target,
        temperature=temperature,
        with_entropy=with_entropy,
        entropy_gradient=entropy_gradient,
    )
    logp, entropy = through(model, layout, head)
    return logp, entropy


def through(model: Any, layout: Layout, head: Head) -> tuple[Float[torch.Tensor, "N"], ...]:  # noqa: F821
    """What `head` says of the hidden states that the layout asks for.

    Args:
        model: As `read` takes it.
        layout: The rows.
        head: Stands in for the language head while the model is called.
    """
    own = causal_model(model).get_output_embeddings()
    own.forward = lambda hidden: torch.stack(head(hidden.squeeze(0), own.weight, own.bias), -1).unsqueeze(0)
    try:
        found = model(**inputs_of(layout), logits_to_keep=layout.read).logits
    finally:
        del own.forward
    return found.squeeze(0).unbind(-1)  # type: ignore[no-any-return]


def inputs_of(layout: Layout) -> dict[str, Any]:
    """What a transformers model is called with. A mask in four dimensions tells it to make none of its own."""
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids.device)
    where = {"position_ids": layout.positions, "attention_mask": no_mask, "layout": layout}
    return {"input_ids": layout.ids, **where, "use_cache": False}


def causal_model(model: Any) -> Any:
    """The transformers model within its wrappers."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model
