"""Padding-free log-probs with the interface of the padded pass: padded in, padded out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_fast.attention import install_attention
from rlm_fast.forward import packed_logprobs
from rlm_fast.pack import is_packable, layouts
from rlm_fast.support import PaddedForward, max_packed_length, prepare
from rlm_plugins.models.adapters import causal_model

logger = logging.getLogger(__name__)


class PackedForward:
    """Padding-free forward pass in which shared prefixes occur once.

    Args:
        model: The policy; its attention is wrapped if it supports packing.
        padded_forward: The stock pass, for the self-check.
        temperature: Divides the logits.
        entropy_gradient: A term of the loss needs the gradient of the entropy.

    Attributes:
        reason: Why the model is unsupported and passes stay padded, or None.
        relative: Prompts of unequal length may share a prefix.
    """

    def __init__(
        self, model: Any, padded_forward: PaddedForward, *, temperature: float, entropy_gradient: bool
    ) -> None:
        self.reason, self.relative = prepare(model, padded_forward, temperature=temperature)
        self._max_length = max_packed_length(causal_model(model).config)
        self._entropy_gradient = entropy_gradient
        self._has_warned = False

    def supports(self, ids: Int[torch.Tensor, "B W"], attention_mask: Int[torch.Tensor, "B W"], width: int) -> bool:
        """Return True if a batch can be packed: padding surrounds it, and no sequence exceeds the model's limit.

        Args:
            ids: Prompts, padded on the left, and completions, padded on the right.
            attention_mask: 1 for tokens, 0 for padding.
            width: Width of the completions.
        """
        if self.reason is not None or not is_packable(attention_mask, width):
            return False
        if self._max_length is None or ids.shape[1] <= self._max_length:
            return True
        if not self._has_warned:
            logger.warning(
                "padded forward passes: the batch is wider than %d tokens, beyond which positions or attention differ",
                self._max_length,
            )
        self._has_warned = True
        return False

    def __call__(
        self,
        model: Any,
        ids: Int[torch.Tensor, "B W"],
        attention_mask: Int[torch.Tensor, "B W"],
        width: int,
        *,
        temperature: float,
        with_entropy: bool = True,
        live: Sequence[bool] | None = None,
        budget: int | None = None,
    ) -> tuple[Float[torch.Tensor, "B width"], Float[torch.Tensor, "B width"]]:
        """Return log-probs and entropies (nats); 0 at padding, for sequences that are not live, and if not requested.

        Args:
            model: The policy or its reference, as the trainer holds it.
            ids: Prompts, padded on the left, and completions, padded on the right.
            attention_mask: 1 for tokens, 0 for padding.
            width: Width of the completions.
            temperature: Divides the logits.
            with_entropy: Compute entropies.
            live: True for each sequence that is needed; None: all.
            budget: Most tokens of one pass; a single prompt with its completions may exceed it.
        """
        install_attention(causal_model(model))  # a reference model with weights of its own first appears here
        # Without a term that needs it, the gradient of the entropy would cost one more product.
        with_gradient = self._entropy_gradient and torch.is_grad_enabled()
        logp = entropy = ids.new_zeros((), dtype=torch.float32)
        for layout in layouts(ids, attention_mask, width, live=live, budget=budget, relative=self.relative):
            packed = packed_logprobs(
                model, layout, temperature=temperature, with_entropy=with_entropy, entropy_gradient=with_gradient
            )
            logp, entropy = logp + layout.unpack(packed[0]), entropy + layout.unpack(packed[1])
        return logp, entropy
