"""Rows without padding, each prompt once: what one sequence of live tokens says of the batch it stands for.

Rows of a group start with the same prompt. One copy of it serves them all: as a tree whose trunk is the prompt and
whose branches are the completions. The last token of a completion predicts nothing that is asked, so it is left out.

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
    """Tokens side by side for which attention is called once.

    Args:
        tokens: How many they are.
        sees: Which tokens of the prompt and of the run they see; None: the run starts with the prompt, and each sees
            all before it.
    """

    tokens: int
    sees: Bool[torch.Tensor, "n P+n"] | None = None
    _masks: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)

    def mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """What is added to the scores, made once for all layers: 0, or −∞ where a token does not see another."""
        if self.sees is not None and dtype not in self._masks:
            nothing = torch.zeros(self.sees.shape, dtype=dtype, device=self.sees.device)
            self._masks[dtype] = nothing.masked_fill_(~self.sees, -torch.inf)
        return self._masks.get(dtype)


@dataclass(frozen=True)
class Tree:
    """One prompt and what was written after it.

    Args:
        shown: Tokens of the prompt.
        runs: They follow each other in the packed sequence; the first holds the prompt and one completion.
    """

    shown: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Layout:
    """A batch of B rows with completions of width C, as one sequence of T live tokens.

    Args:
        ids: Token ids.
        positions: Of each token in its padded row, which is where the padded pass has it too.
        trees: Who sees whom.
        read: The tokens after which a completion token is asked for.
        target: The completion tokens asked for.
        place: Where each of them stands in the flattened (B, C).
        shape: B and C.
    """

    ids: Int[torch.Tensor, "1 T"]
    positions: Int[torch.Tensor, "1 T"]
    trees: tuple[Tree, ...]
    read: Int[torch.Tensor, "N"]  # noqa: F821
    target: Int[torch.Tensor, "N"]  # noqa: F821
    place: Int[torch.Tensor, "N"]  # noqa: F821
    shape: tuple[int, int]

    def padded(self, x: Float[torch.Tensor, "N"]) -> Float[torch.Tensor, "B C"]:  # noqa: F821
        """What was read, where it belongs; 0 where nothing was."""
        rows, width = self.shape
        return x.new_zeros(rows * width).index_put((self.place,), x).view(rows, width)
