"""Attention of rows whose prompts are kept once: in two parts, each a softmax of its own, joined exactly.

    o = w o_prompt + (1 - w) o_own,    w = σ(z_prompt - z_own),    z = log Σ exp(scores)

The rows of a prompt stand side by side as queries of one product, so its keys are read once for all of them. That
costs some calls more, and pays while there are enough rows of a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int

PAYS = 3 * 2**15
"""Keys (numbers of a layer) that must not be read again, for the other calls to be worth it."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values (D, heads, P, d)."""


class Prompts:
    """Distinct prompts, and which row goes on from which.

    Args:
        kept: Their keys and values, layer by layer.
        twin: (L,) the prompt of each row.
        mask: (L, 1, 1, P or more), added to the scores of each row: a large negative number on padding; None: none.
    """

    def __init__(
        self,
        kept: Sequence[Pair],
        twin: Int[torch.Tensor, "L"],  # noqa: F821
        mask: Float[torch.Tensor, "L 1 1 _"] | None,
    ) -> None:
        left, self.twin = twin.unique(return_inverse=True)
        is_left = len(left) == len(kept[0][0])
        self.kept = list(kept) if is_left else [(keys[left], values[left]) for keys, values in kept]
        self._seat()
        tokens = kept[0][0].shape[2]
        self._mask = None if mask is None else mask[self._rows[:: self._side], ..., :tokens]

    def _seat(self) -> None:
        """Gives the rows of a prompt seats side by side; seats that are left over are computed in vain."""
        many = self.twin.bincount()
        order = self.twin.argsort(stable=True)
        side = int(many.max())
        nth = torch.arange(len(order), device=order.device) - (many.cumsum(0) - many)[self.twin[order]]
        self._side, self._seats = side, torch.empty_like(order)
        self._seats[order] = self.twin[order] * side + nth
        self._rows = order.new_zeros(len(many) * side)
        self._rows[self._seats] = torch.arange(len(order), device=order.device)

    def keep(self, places: torch.Tensor, mask: torch.Tensor | None) -> Prompts:
        """What is left of them where only the rows at these places are; the mask is theirs."""
        return Prompts(self.kept, self.twin[places], mask)

    def seen(
        self, number: int, asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """What the queries see in a layer, (L, heads, queries, d) like `asked`.

        Args:
            number: Of the layer.
            asked: Queries of a row that share keys stand where tokens do.
            keys: (L, heads, T, d) of the tokens after the prompt.
            values: Likewise.
            scale: Of the scores.
        """
        heads, queries, d = asked.shape[1:]
        asked = asked.transpose(1, 2)  # as the result lies in memory: rows of a prompt become one without a copy
        beside = asked.index_select(0, self._rows).view(-1, self._side * queries, heads, d)
        theirs, z = _attend(beside, *self.kept[number], self._mask, scale)
        own, own_z = _attend(asked, keys, values, None, scale)
        theirs, z = (x.reshape(len(self._rows), -1).index_select(0, self._seats) for x in (theirs, z))
        share = (z.view(own_z.shape) - own_z).sigmoid_().unsqueeze(-1)
        return own.lerp(theirs.view(own.shape), share).transpose(1, 2)


def pays(twin: torch.Tensor, keys: torch.Tensor) -> bool:
    """Whether these prompts had better be kept once.

    Args:
        twin: (L,) the prompt of each row.
        keys: (D, heads, P, d) of a layer.
    """
    return keys.device.type == "cpu" and (len(twin) - len(keys)) * keys[0].numel() >= PAYS


def _attend(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> Pair:
    """Torch's own attention on the CPU, and the logarithm of the sum that its softmax divides by; heads come third."""
    found, z = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        asked.transpose(1, 2), keys, values, attn_mask=mask, scale=scale
    )
    return found.transpose(1, 2), z.transpose(1, 2)
