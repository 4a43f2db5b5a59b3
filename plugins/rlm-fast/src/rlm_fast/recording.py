"""Log-probs and entropies recorded during decoding.

They equal those of a forward pass over the finished sequences if the model does not depend on absolute positions.
The trainer checks that before it uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.rollout.generator_call import Generation


def generation_from_steps(ids: torch.Tensor, steps: Iterable[tuple[torch.Tensor, ...]]) -> Generation:
    """Build a generation from what each decoding step recorded.

    Args:
        ids: (B, P + T) prompts and completions.
        steps: (indices of the active sequences, their log-probs, their entropies) of each of the T steps.
    """
    columns: list[list[torch.Tensor]] = [[], []]
    for indices, *recorded in steps:
        for column, x in zip(columns, recorded, strict=True):
            column.append(x.new_zeros(len(ids)).index_copy(0, indices, x))
    logp, entropy = (torch.stack(column, 1) for column in columns)
    return Generation(ids, logp, entropy)


def token_statistics(
    logits: Float[torch.Tensor, "L V"],
    token: Int[torch.Tensor, "L"],  # noqa: F821
    config: Any,
) -> tuple[Float[torch.Tensor, "L"], Float[torch.Tensor, "L"]]:  # noqa: F821
    """Return log π(y) and H(π) at the sampling temperature; top-k, top-p and min-p do not change π here.

    Args:
        logits: Unprocessed logits of the model.
        token: Sampled token ids.
        config: `GenerationConfig` of transformers.
    """
    temperature = config.temperature if config.do_sample else None
    z = torch.log_softmax(logits / (temperature or 1.0), -1)
    return z.gather(1, token.unsqueeze(1)).squeeze(1), -torch.linalg.vecdot(z.exp(), z)
