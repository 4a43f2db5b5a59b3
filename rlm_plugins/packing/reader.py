"""The packed pass as the trainer asks for it: padded in, padded out, where a model takes packed rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.packing import attention
from rlm_plugins.packing import support as fits
from rlm_plugins.packing.forward import causal_model, read
from rlm_plugins.packing.pack import is_packable, layouts

logger = logging.getLogger(__name__)


class PackedReader:
    """Reads rows packed.

    Args:
        model: The policy; it is prepared for packed rows if it takes them.
        padded: The stock pass over it.
        temperature: Logits are divided by it.
        entropy_gradient: Whether a term of the loss needs the gradient of the entropy.
    """

    def __init__(self, model: Any, padded: fits.Padded, *, temperature: float, entropy_gradient: bool) -> None:
        self.reason = fits.prepare(model, padded, temperature=temperature)
        """Why rows stay padded; None: they do not."""
        self._longest = fits.longest(causal_model(model).config)
        self._entropy_gradient = entropy_gradient
        self._told = False

    def takes(self, ids: Int[torch.Tensor, "B W"], there: Int[torch.Tensor, "B W"], width: int) -> bool:
        """Whether these rows are read packed: padding only surrounds them, and their length changes nothing."""
        if self.reason is not None or not is_packable(there, width):
            return False
        if self._longest is None or ids.shape[1] <= self._longest:
            return True
        if not self._told:
            logger.warning(
                "rows are read padded: they are longer than %d tokens, beyond which the model reads otherwise",
                self._longest,
            )
        self._told = True
        return False

    def __call__(
        self,
        model: Any,
        ids: Int[torch.Tensor, "B W"],
        there: Int[torch.Tensor, "B W"],
        width: int,
        *,
        temperature: float,
        with_entropy: bool = True,
        live: Sequence[bool] | None = None,
        budget: int | None = None,
    ) -> tuple[Float[torch.Tensor, "B width"], Float[torch.Tensor, "B width"]]:
        """Log-probabilities and entropies; 0 at padding, of rows that are not live, and where it is not asked for.

        Args:
            model: The policy or its reference, as the trainer holds it.
            ids: Prompts, padded on the left, and completions, padded on the right.
            there: 1 where a token is no padding.
            width: Of the completions.
            temperature: Logits are divided by it.
            with_entropy: Whether entropies are asked for.
            live: Whether a row is asked for; None: all are.
            budget: Most tokens at once, but for a longer tree.
        """
        attention.install(causal_model(model))  # a reference with weights of its own comes here first
        learns = self._entropy_gradient and torch.is_grad_enabled()
        logp = entropy = ids.new_zeros((), dtype=torch.float32)
        for layout in layouts(ids, there, width, live=live, budget=budget):
            found = read(model, layout, temperature=temperature, with_entropy=with_entropy, entropy_gradient=learns)
            logp, entropy = logp + layout.padded(found[0]), entropy + layout.padded(found[1])
        return logp, entropy
