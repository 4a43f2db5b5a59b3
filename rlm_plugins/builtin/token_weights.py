"""c: how much a token of ℓ counts (hook ``rlm_token_weights``). Without gradient; several multiply."""

from __future__ import annotations

from jaxtyping import Bool, Float

from rlm_plugins import hookimpl
from rlm_plugins.lazy import torch


def complete_rows(truncated: Bool[torch.Tensor, "B"]) -> Float[torch.Tensor, "B 1"]:
    """c = 0 for rows cut off by the length limit, 1 otherwise: an unfinished answer is no wrong answer.

    DAPO's overlong filtering, arXiv 2503.14476 §3.4. The rows stay in every denominator; GRPOConfig's
    ``mask_truncated_completions`` takes them out of it as well.

    >>> complete_rows(torch.tensor([True, False])).tolist()
    [[0.0], [1.0]]
    """
    return (~truncated).float().unsqueeze(1)


@hookimpl
def rlm_token_weights() -> dict[str, object]:
    return {"complete_rows": complete_rows}
