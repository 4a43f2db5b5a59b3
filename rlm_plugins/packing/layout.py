"""Layout of a batch without padding and with each prompt once, as one sequence of tokens.

The completions of a group share a prompt. They form a tree whose trunk is the prompt and whose branches are the
completions. The last token of a completion predicts nothing that is needed, so it is left out.

::

    padded    . . q u | a b e .        packed   q u a b c d d
              . . q u | c d d e                 trunk [0, 2), branches [2, 4) and [4, 7)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Run:
    """Consecutive tokens of one attention call.

    Args:
        tokens: Number of tokens.
        visible: True where a token of the run attends to a token of the prompt or of the run. None: the run starts
            with the prompt and is causal.
    """

    tokens: int
    visible: Bool[torch.Tensor, "n P+n"] | None = None
    _masks: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)

    def mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the additive mask, 0 or −∞, computed once for all layers; None if the run is causal."""
        if self.visible is not None and dtype not in self._masks:
            zeros = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
            self._masks[dtype] = zeros.masked_fill_(~self.visible, -torch.inf)
        return self._masks.get(dtype)


@dataclass(frozen=True)
class Tree:
    """One prompt and its completions.

    Args:
        prompt_len: Tokens of the prompt.
        runs: Consecutive in the packed sequence; the first holds the prompt and one completion.
    """

    prompt_len: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Layout:
    """Batch of B sequences with completions of width C, packed into one sequence of T tokens.

    Args:
        ids: Token ids.
        positions: Position of each token in its padded sequence, as in the padded pass.
        trees: Prompts with their completions.
        logits_to_keep: Indices of the tokens whose logits are needed.
        target: The completion tokens these predict.
        index: Index of each target in the flattened (B, C).
        shape: B and C.
    """

    ids: Int[torch.Tensor, "1 T"]
    positions: Int[torch.Tensor, "1 T"]
    trees: tuple[Tree, ...]
    logits_to_keep: Int[torch.Tensor, "N"]  # noqa: F821
    target: Int[torch.Tensor, "N"]  # noqa: F821
    index: Int[torch.Tensor, "N"]  # noqa: F821
    shape: tuple[int, int]

    def unpack(self, x: Float[torch.Tensor, "N"]) -> Float[torch.Tensor, "B C"]:  # noqa: F821
        """Scatter one number per target to the padded batch; 0 elsewhere."""
        batch_size, width = self.shape
        return x.new_zeros(batch_size * width).index_put((self.index,), x).view(batch_size, width)
