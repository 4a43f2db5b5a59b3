"""Support of a model for padding-free passes: known exceptions by reason, all others by a self-check.

The self-check computes two synthetic groups padded and packed. A model that mixes tokens in a way the layout does not
express (positions from the attention mask, scaled logits, recurrence) gives other numbers, and stays padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlm_plugins.kernels.model_traits import IMAGES, causal_model, has_dropout, has_vision, position_limit
from rlm_plugins.kernels.plain_linear import is_plain
from rlm_plugins.kernels.rng_guard import MODEL_ERRORS, USES_RNG, preserve_rng
from rlm_plugins.packing.attention import SUPPORTED, implementation, install_attention, uninstall_attention
from rlm_plugins.packing.forward import packed_logprobs
from rlm_plugins.packing.pack import layouts

PaddedForward = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(ids, attention_mask, width of the completions) → log-probs (B, width) of the stock pass."""


def prepare(model: Any, padded_forward: PaddedForward, *, temperature: float) -> str | None:
    """Wrap the attention of a model for packing; return why it is unsupported and left as it is, or None.

    Args:
        model: A causal language model, with or without adapters.
        padded_forward: The stock pass over it.
        temperature: Divides the logits.
    """
    if reason := why_unsupported(model):
        return reason
    install_attention(causal_model(model))
    if reason := _why_self_check_fails(model, padded_forward, temperature):
        uninstall_attention(causal_model(model))
    return reason


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
        kind = f"{type(head).__module__}.{type(head).__name__}"  # with its module: PEFT has a Linear too
        return f"expected a plain linear language head, got {kind}"
    if not is_plain(head):
        return "the language head has hooks or a patched forward"
    if any(kind not in ("full_attention", "sliding_attention") for kind in getattr(config, "layer_types", None) or ()):
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
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) if slides else None
    limits = [limit for limit in (window, position_limit(config)) if limit is not None]
    return min(limits, default=None)


def _why_self_check_fails(model: Any, padded_forward: PaddedForward, temperature: float) -> str | None:
    """Compare both passes on two synthetic groups; leaves the RNG state as it is."""
    base = causal_model(model)
    device = next(base.parameters()).device
    vocab_size = base.config.get_text_config().vocab_size
    ids = torch.arange(1, 1 + 4 * 9, device=device).view(4, 9) * 7 % vocab_size
    # Two groups with shared prompts, padded on both sides and of unequal length.
    ids[1, :4], ids[3, :4] = ids[0, :4], ids[2, :4]
    attention_mask = torch.ones_like(ids)
    attention_mask[2:, :2], attention_mask[1, 6:], attention_mask[2, 5:] = 0, 0, 0
    with torch.no_grad(), preserve_rng(device) as rng_was_used:
        # The padded pass comes first: its random numbers tell whether the model draws any.
        expected = padded_forward(ids, attention_mask, 5)
        if rng_was_used():
            return USES_RNG
        (layout,) = layouts(ids, attention_mask, 5)
        try:
            actual = layout.unpack(packed_logprobs(model, layout, temperature=temperature)[0])
        except MODEL_ERRORS as error:
            return f"the packed forward pass fails ({type(error).__name__}: {error})"
    exact = base.dtype == torch.float32 and not torch.is_autocast_enabled(device.type)
    difference = ((actual - expected) * attention_mask[:, -5:]).abs().max().item()
    if difference <= (1e-4 if exact else 5e-2):
        return None
    return f"log-probs of the packed forward pass differ by {difference:.2g} nats"
