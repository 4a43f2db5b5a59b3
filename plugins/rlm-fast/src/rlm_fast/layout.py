"""Layout of a batch without padding, in which shared prefixes occur once, as one sequence of tokens.

The sequences of a batch form a prefix tree (`prefix_tree.py`): completions of a group share a prompt, prompts
share a chat template or examples, and completions may share their first tokens. The last token of a completion
predicts nothing that is needed, so it is left out.

::

    padded    . . q u | a b e .        packed   q u a b c d d
              . . q u | c d d e                 segments [0, 2), [2, 4) and [4, 7)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int

from rlm_fast.tree_attention import TreeAttention


@dataclass(frozen=True)
class Layout:
    """Batch of B sequences with completions of width C, packed into one sequence of T tokens.

    Args:
        ids: Token ids.
        positions: Position of each token in its padded sequence, or that shifted with its whole path.
        attention: Attention calls of the sequence.
        logits_to_keep: Indices of the tokens whose logits are needed.
        target: The completion tokens these predict.
        source: Index of the log-prob of each completion token; tokens with equal prefixes share one.
        index: Index of each completion token in the flattened (B, C).
        shape: B and C.
    """

    ids: Int[torch.Tensor, "1 T"]
    positions: Int[torch.Tensor, "1 T"]
    attention: TreeAttention
    logits_to_keep: Int[torch.Tensor, "N"]  # noqa: F821
    target: Int[torch.Tensor, "N"]  # noqa: F821
    source: Int[torch.Tensor, "M"]  # noqa: F821
    index: Int[torch.Tensor, "M"]  # noqa: F821
    shape: tuple[int, int]

    def unpack(self, x: Float[torch.Tensor, "N"]) -> Float[torch.Tensor, "B C"]:  # noqa: F821
        """Scatter one number per target to the padded batch; 0 elsewhere."""
        batch_size, width = self.shape
        return x.new_zeros(batch_size * width).index_put((self.index,), x[self.source]).view(batch_size, width)
