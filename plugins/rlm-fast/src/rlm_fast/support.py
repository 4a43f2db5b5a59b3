"""Support of a model for padding-free passes: known unsupported models by reason, all others by a self-check.

The self-check computes synthetic sequences padded and packed. A model that mixes tokens in a way the layout does not
express gives other numbers, and stays padded: positions from the attention mask, scaled logits, recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from rlm_fast.attention import SUPPORTED, implementation, install_attention, uninstall_attention
from rlm_fast.forward import packed_logprobs
from rlm_fast.pack import layouts
from rlm_fast.plain_linear import is_plain
from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.models.adapters import IMAGES, causal_model, has_dropout, has_vision, position_limit

PaddedForward = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(ids, attention_mask, width of the completions) → log-probs (B, width) of the stock pass."""
USES_RNG = "the forward pass draws random numbers"
"""Reason for stock passes and stock decoding: fewer calls, or other sequences, would draw other numbers."""
MODEL_ERRORS = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)
"""Errors of a model that does not support a self-check."""


class Support(NamedTuple):
    """Support of a model.

    Args:
        reason: Why the model is unsupported, or None.
        relative: Prompts of unequal length may share a prefix: the model's positions are relative.
    """

    reason: str | None
    relative: bool = False


def prepare(model: Any, padded_forward: PaddedForward, *, temperature: float) -> Support:
    """Wrap the attention of a model for packing; a model that is unsupported is left as it is.

    Args:
        model: A causal language model, with or without adapters.
        padded_forward: The stock pass over it.
        temperature: Divides the logits.
    """
    if reason := why_unsupported(model):
        return Support(reason)
    install_attention(causal_model(model))
    support = _self_check(model, padded_forward, temperature)
    if support.reason is not None:
        uninstall_attention(causal_model(model))
    return support


def why_unsupported(model: Any) -> str | None:
    """Return why padding-free passes are known to be unsupported for this model, or None.

    Args:
        model: A causal language model, with or without adapters; may be on the meta device.
    """
    base = causal_model(model)
    config, head = base.config.get_text_config(), base.get_output_embeddings()
    if has_vision(base):
        return IMAGES
    if implementation(base) not in SUPPORTED:
        return f"expected the attention {' or '.join(SUPPORTED)}, got '{implementation(base)}'"
    if type(head) is not torch.nn.Linear:
        class_name = f"{type(head).__module__}.{type(head).__name__}"  # with its module: PEFT has a Linear too
        return f"expected a plain linear language head, got {class_name}"
    if not is_plain(head):
        return "the language head has hooks or a patched forward"
    if any(name not in ("full_attention", "sliding_attention") for name in getattr(config, "layer_types", None) or ()):
        return "the model has layers without attention"
    if has_dropout(base):
        return "dropout is on, and its masks depend on the padding"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "the adapter adds virtual tokens to each prompt"
    return None


def max_packed_length(config: Any) -> int | None:
    """Return the longest sequence (tokens) in which attention is full and positions count alike; None: any.

    Args:
        config: Config of a causal language model.
    """
    config = config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in layer_types if layer_types else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) if slides else None
    limits = [limit for limit in (window, position_limit(config)) if limit is not None]
    return min(limits, default=None)


def _self_check(model: Any, padded_forward: PaddedForward, temperature: float) -> Support:
    """Compare both passes on synthetic sequences; leaves the RNG state as it is."""
    base = causal_model(model)
    device = next(base.parameters()).device
    vocab_size = base.config.get_text_config().vocab_size
    ids = torch.arange(1, 1 + 4 * 9, device=device).view(4, 9) * 7 % vocab_size
    # Two completions of a prompt, one of a prefix of that prompt, one of another prompt; padding on both sides.
    ids[1, :4], ids[2, 2:4] = ids[0, :4], ids[0, :2]
    attention_mask = torch.ones_like(ids)
    attention_mask[2:, :2], attention_mask[1, 6:], attention_mask[2, 5:] = 0, 0, 0
    exact = base.dtype == torch.float32 and not torch.is_autocast_enabled(device.type)
    with torch.no_grad(), temporary_rng_state() as drawn:
        # The padded pass comes first: its random numbers tell whether the model draws any.
        expected = padded_forward(ids, attention_mask, 5)
        if drawn():
            return Support(USES_RNG)
        difference = 0.0
        for relative in (True, False):
            (layout,) = layouts(ids, attention_mask, 5, relative=relative, min_saved=1)
            try:
                actual = layout.unpack(packed_logprobs(model, layout, temperature=temperature)[0])
            except MODEL_ERRORS as error:
                return Support(f"the packed forward pass fails ({type(error).__name__}: {error})")
            difference = ((actual - expected) * attention_mask[:, -5:]).abs().max().item()
            if difference <= (1e-4 if exact else 5e-2):
                return Support(None, relative)
    return Support(f"log-probs of the packed forward pass differ by {difference:.2g} nats")
