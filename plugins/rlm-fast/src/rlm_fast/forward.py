"""Forward pass over a packed layout, through the model's own forward, so that wrappers such as DDP still apply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch.nn.functional import linear

from rlm_fast.fused_logprob_head import chunks, fused_logprobs
from rlm_fast.layout import Layout
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.trainer.passes import NAMES, token_statistics

Head = Callable[..., tuple[torch.Tensor, ...]]
"""(hidden states (N, H), weight (V, H), bias (V,) or None) → several (N,)."""


def packed_logprobs(
    model: Any,
    layout: Layout,
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    entropy_gradient: bool = False,
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Return log-probs and entropies (nats, float32) of the targets of a layout.

    Args:
        model: A causal language model after `install_attention`; it may be wrapped (PEFT, DDP).
        layout: The packed batch.
        temperature: Divides the logits.
        with_entropy: Compute the entropy; else it is 0.
        entropy_gradient: Let gradients flow through the entropy.
    """
    head = partial(
        fused_logprobs,
        target=layout.target,
        temperature=temperature,
        with_entropy=with_entropy,
        entropy_gradient=entropy_gradient,
    )
    logp, entropy = forward_with_head(model, layout, head)
    return logp, entropy


def forward_with_head(model: Any, layout: Layout, head: Head) -> tuple[Float[torch.Tensor, "N"], ...]:  # noqa: F821
    """Run a packed pass with `head` in place of the language head, and return its outputs.

    Args:
        model: A causal language model after `install_attention`; it may be wrapped (PEFT, DDP).
        layout: The packed batch.
        head: Called with the hidden states that predict the targets, and the weight and bias of the language head.
    """
    lm_head = causal_model(model).get_output_embeddings()
    # The patched head returns its outputs stacked as "logits", so that they pass through any wrapper.
    lm_head.forward = lambda hidden: torch.stack(head(hidden.squeeze(0), lm_head.weight, lm_head.bias), -1).unsqueeze(0)
    try:
        output = model(**model_inputs(layout), logits_to_keep=layout.logits_to_keep).logits
    finally:
        del lm_head.forward
    return output.squeeze(0).unbind(-1)  # type: ignore[no-any-return]


def model_inputs(layout: Layout) -> dict[str, Any]:
    """Return the inputs of a transformers model for a layout."""
    # transformers builds no mask of its own if the given one has four dimensions.
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids.device)
    positions = {"position_ids": layout.positions, "attention_mask": no_mask, "layout": layout}
    return {"input_ids": layout.ids, **positions, "use_cache": False}


def packed_statistics(
    model: Any, layouts: Iterable[Layout], *, temperature: float
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """Compute the statistics of completions by padding-free forward passes, without gradient, a few logits at a time.

    Args:
        model: A policy that supports packing.
        layouts: Layouts of all sequences.
        temperature: Divides the logits.
    """

    def head(
        hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        totals: dict[str, list[torch.Tensor]] = {name: [] for name in NAMES}
        for rows in chunks(hidden, weight):
            logits = linear(hidden[rows], weight, bias)[None].float() / temperature
            for name, x in token_statistics(logits, target[None, rows]).items():
                totals[name].append(x[0])
        return tuple(map(torch.cat, totals.values()))

    totals = dict.fromkeys(NAMES, torch.zeros(()))
    with torch.no_grad():
        for layout in layouts:
            columns = forward_with_head(model, layout, partial(head, target=layout.target))
            for name, x in zip(NAMES, columns, strict=True):
                totals[name] = totals[name].to(x.device) + layout.unpack(x)
    return totals
