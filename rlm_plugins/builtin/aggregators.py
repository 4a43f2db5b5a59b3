"""1/Z: aggregation of per-token losses to a scalar (hook ``rlm_aggregators``).

The counts are global: of one optimizer step, over micro-batches and ranks. So the sum over micro-batches does not
depend on how the batch is split. A completion without trained tokens is in no denominator, unless `empty_completions`
is "included", as in TRL (loss types grpo and dr_grpo, RLOO), ROLL and verl's geo_mean.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import PositiveInt

from rlm_plugins import hookimpl
from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch

EmptyCompletions = Literal["excluded", "included"]


def token_mean(
    loss: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], num_tokens: Float[torch.Tensor, ""]
) -> Float[torch.Tensor, ""]:
    """Σ x / Σ n: every token weighs the same, a long completion more than a short one. DAPO, arXiv 2503.14476 eq. 12.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> token_mean(loss, mask, num_tokens=torch.tensor(3.0)).item()
    2.0
    """
    return loss.where(mask, 0.0).sum() / num_tokens


def sequence_mean(
    loss: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    num_sequences: Float[torch.Tensor, ""],
    num_sequences_all: Float[torch.Tensor, ""] | None = None,
    *,
    empty_completions: EmptyCompletions = "excluded",
) -> Float[torch.Tensor, ""]:
    """mean_i( Σₜ x / nᵢ ): every completion weighs the same, a token of a long one less. GRPO, arXiv 2402.03300 eq. 3.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> sequence_mean(loss, mask, num_sequences=torch.tensor(2.0)).item()
    2.0
    """
    return (loss.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)).sum() / _count(
        num_sequences, num_sequences_all, empty_completions
    )


def sequence_sum(
    loss: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    num_sequences: Float[torch.Tensor, ""],
    num_sequences_all: Float[torch.Tensor, ""] | None = None,
    *,
    empty_completions: EmptyCompletions = "excluded",
) -> Float[torch.Tensor, ""]:
    """mean_i( Σₜ x ): the completion is one action. RLOO, arXiv 2402.14740; ReMax, 2310.10505.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> sequence_sum(loss, mask, num_sequences=torch.tensor(2.0)).item()
    3.0
    """
    return loss.where(mask, 0.0).sum(-1).sum() / _count(num_sequences, num_sequences_all, empty_completions)


def fixed_length(
    loss: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    num_sequences: Float[torch.Tensor, ""],
    max_completion_length: int,
    num_sequences_all: Float[torch.Tensor, ""] | None = None,
    *,
    length: PositiveInt | None = None,
    over: Literal["completions", "batch"] = "completions",
    empty_completions: EmptyCompletions = "excluded",
) -> Float[torch.Tensor, ""]:
    """mean_i( Σₜ x ) / L: a constant L, so that weights do not depend on the length. Dr. GRPO, arXiv 2503.20783.

    `length`: L in tokens; by default the maximum completion length. It is never the padded width, which changes with
    the batch (verl's default). `over` "batch": the sum over completions, not their mean (ROLL, LUFFY, verl before 0.9),
    so that a larger batch is a larger step.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> fixed_length(loss, mask, num_sequences=torch.tensor(2.0), max_completion_length=6).item()
    0.5
    """
    count = _count(num_sequences, num_sequences_all, empty_completions) if over == "completions" else 1
    return loss.where(mask, 0.0).sum() / (count * (length or max_completion_length))


def micro_batch_token_mean(
    loss: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], num_micro_batches: Float[torch.Tensor, ""]
) -> Float[torch.Tensor, ""]:
    """mean_m( Σ x / Σ n ): over micro-batches m, so it depends on how the batch is split.

    BNPO as TRL computes it (`loss_type="bnpo"`; arXiv 2506.02864 is the name's origin). Prefer `token_mean`.

    >>> loss, mask = torch.tensor([[1.0, 3.0], [2.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> micro_batch_token_mean(loss, mask, num_micro_batches=torch.tensor(2.0)).item()
    1.0
    """
    return loss.where(mask, 0.0).sum() / mask.sum().clamp(min=1.0) / num_micro_batches


def _count(
    trained: Float[torch.Tensor, ""], total: Float[torch.Tensor, ""] | None, empty_completions: EmptyCompletions
) -> Float[torch.Tensor, ""]:
    """Return the number of completions to divide by."""
    if empty_completions == "excluded":
        return trained
    if total is None:
        raise PartError(
            '`empty_completions` "included" requires `num_sequences_all`', where="aggregator: empty_completions"
        )
    return total


for _mean in (token_mean, fixed_length, micro_batch_token_mean):
    _mean.granularity = "token"  # type: ignore[union-attr]


@hookimpl
def rlm_aggregators() -> dict[str, object]:
    return {
        "token_mean": token_mean,
        "sequence_mean": sequence_mean,
        "sequence_sum": sequence_sum,
        "fixed_length": fixed_length,
        "micro_batch_token_mean": micro_batch_token_mean,
    }
