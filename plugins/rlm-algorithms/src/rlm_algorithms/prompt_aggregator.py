"""1/Z: a mean over prompts, of a mean within each."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch


def prompt_mean(
    loss: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    *,
    within: Literal["tokens", "completions"] = "tokens",
) -> Float[torch.Tensor, ""]:
    """mean_g( {within tokens → Σ x / Σ n; completions → mean_i( Σₜ x / nᵢ )} ): every prompt weighs the same.

    `within` a prompt it is the mean over "tokens": SkyRL 0.3, and eq. 8 of DAPO (arXiv 2503.14476), whose code has one
    mean over the batch. Over "completions" it is the mean of their token means: with groups of equal size that is
    `sequence_mean`. Prompts are counted over the optimizer step; one without trained tokens is not counted. A step of
    several micro-batches costs one more forward pass.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [5.0, 0.0]]), torch.tensor([[True, True], [True, False]])
    >>> step = Batch(mask=mask, group=torch.tensor([0, 1]))
    >>> prompt_mean(loss, mask, step, torch.tensor([0, 1])).item()  # (2 + 5) / 2
    3.5
    """
    lengths = step_batch.mask.sum(1).to(loss.dtype)
    size = lengths if within == "tokens" else (lengths > 0).to(loss.dtype)
    groups = Groups(size, step_batch.group)
    total = groups.table.nansum(1, keepdim=True)
    share = groups.flatten(1 / total.clamp(min=1) / (total > 0).sum().clamp(min=1))[step_batch_rows]
    own = loss.where(mask, 0.0).sum(1)
    return (own * share if within == "tokens" else own / mask.sum(1).clamp(min=1) * share).sum()


prompt_mean.granularity = "token"  # type: ignore[attr-defined]
