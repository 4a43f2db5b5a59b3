"""Whether a model may be read packed: what is known to need padding in words, and for all else a trial.

The trial reads two made-up groups both ways. A model that mixes tokens in a way the layout does not know (positions
from the attention mask, scaled logits, recurrence, …) gives other numbers, and is read padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlm_plugins.kernels.plain_linear import is_plain
from rlm_plugins.kernels.rng_guard import DRAWS, FAILS, restored
from rlm_plugins.packing import attention
from rlm_plugins.packing.forward import causal_model, read
from rlm_plugins.packing.pack import layouts
from rlm_plugins.packing.position_limits import reach

IMAGES = "it sees images"
Padded = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(ids, 1 where there is a token, width of the completions) → log-probabilities (B, width), as the stock pass reads."""


def prepare(model: Any, padded: Padded, *, temperature: float) -> str | None:
    """Makes a model take packed rows, or says why it stays as it is.

    Args:
        model: A causal language model, with or without adapters.
        padded: The stock pass over it.
        temperature: Logits are divided by it.
    """
    if reason := why_not(model):
        return reason
    attention.install(causal_model(model))
    if reason := _differs(model, padded, temperature):
        attention.uninstall(causal_model(model))
    return reason


def why_not(model: Any) -> str | None:
    """What about a causal language model keeps its rows padded, in words; None: nothing known.

    Args:
        model: With or without adapters.
    """
    base = causal_model(model)
    config, head = base.config.get_text_config(), base.get_output_embeddings()
    if sees_images(base):
        return IMAGES
    if (usual := attention.usual(base)) not in attention.USUAL:
        return f"its attention is '{usual}', and only {' and '.join(attention.USUAL)} are known"
    if type(head) is not torch.nn.Linear:
        kind = f"{type(head).__module__}.{type(head).__name__}"  # PEFT has a Linear too
        return f"its language head is no plain linear layer but a {kind}"
    if not is_plain(head):
        return "its language head is watched, or has a forward of its own"
    if any(kind not in ("full_attention", "sliding_attention") for kind in getattr(config, "layer_types", None) or ()):
        return "it has layers that are no attention"
    if has_dropout(base):
        return "dropout is on, and which tokens it hits depends on the padding"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "its adapter adds virtual tokens to each prompt"
    return None


def longest(config: Any) -> int | None:
    """Longest row (tokens) whose tokens all see each other, wherever they stand; None: any.

    Args:
        config: Of a causal language model.
    """
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) if slides else None
    return min((x for x in (window, reach(config)) if x is not None), default=None)


def _differs(model: Any, padded: Padded, temperature: float) -> str | None:
    """Reads made-up rows both ways and says how far they are apart, if they are. No random number is drawn."""
    base = causal_model(model)
    device = next(base.parameters()).device
    words = base.config.get_text_config().vocab_size
    ids = torch.arange(1, 1 + 4 * 9, device=device).view(4, 9) * 7 % words
    ids[1, :4], ids[3, :4] = ids[0, :4], ids[2, :4]
    there = torch.ones_like(ids)
    there[2:, :2], there[1, 6:], there[2, 5:] = 0, 0, 0
    with torch.no_grad(), restored(device) as drawn:
        usual = padded(ids, there, 5)
        if drawn():
            return DRAWS
        (layout,) = layouts(ids, there, 5)
        try:
            found = layout.padded(read(model, layout, temperature=temperature)[0])
        except FAILS as error:
            return f"it takes no packed rows ({type(error).__name__}: {error})"
    exact = base.dtype == torch.float32 and not torch.is_autocast_enabled(device.type)
    apart = ((found - usual) * there[:, -5:]).abs().max().item()
    return None if apart <= (1e-4 if exact else 5e-2) else f"packed rows are read otherwise, by {apart:.2g} nats"


def sees_images(model: Any) -> bool:
    """Whether a transformers model has eyes."""
    return getattr(model.config, "vision_config", None) is not None


def has_dropout(model: Any) -> bool:
    """Whether a causal language model drops numbers while it trains, in a module or by its config."""
    base = causal_model(model)
    modules = any(module.p > 0 for module in base.modules() if isinstance(module, torch.nn.Dropout))
    return modules or drops(base.config.get_text_config())


def drops(config: Any) -> bool:
    """Whether a model with this config drops attention weights while it trains; no module says so."""
    return any(getattr(config, name, 0) for name in ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"))
