"""What was thought of each token when it was written: the same numbers a pass over the rows would find.

That is so where a row is read the same wherever it stands, which `trainer/old_logprobs.py` tries before it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int

OnFinished = Callable[[list[int], list[list[int]]], None]
"""Is told the numbers of rows that are done, and the tokens that were written on each."""


@dataclass
class Generation:
    """What a generator may return in place of token ids.

    Args:
        ids: Prompts, and completions padded after their end.
        logp: Log-probability of each token of the completions, at the temperature and before any filter (nats).
        entropy: Of the same distribution (nats). Both None: not told.
    """

    ids: Int[torch.Tensor, "B W"]
    logp: Float[torch.Tensor, "B T"] | None = None
    entropy: Float[torch.Tensor, "B T"] | None = None

    @staticmethod
    def of(ids: torch.Tensor, told: Iterable[tuple[torch.Tensor, ...]]) -> Generation:
        """From (numbers of the rows, log-probabilities, entropies) of each step."""
        found: list[list[torch.Tensor]] = [[], []]
        for rows, *each in told:
            for column, x in zip(found, each, strict=True):
                column.append(x.new_zeros(len(ids)).index_copy(0, rows, x))
        logp, entropy = (torch.stack(columns, 1) for columns in found)
        return Generation(ids, logp, entropy)


def thoughts(
    logits: Float[torch.Tensor, "L V"],
    token: Int[torch.Tensor, "L"],  # noqa: F821
    config: Any,
) -> tuple[Float[torch.Tensor, "L"], Float[torch.Tensor, "L"]]:  # noqa: F821
    """log π(y) and H(π) at the temperature of the config, whatever its filters leave of π.

    Args:
        logits: As the model gives them.
        token: Chosen.
        config: transformers' GenerationConfig.
    """
    temperature = config.temperature if config.do_sample else None
    z = torch.log_softmax(logits / (temperature or 1.0), -1)
    return z.gather(1, token.unsqueeze(1)).squeeze(1), -torch.linalg.vecdot(z.exp(), z)
