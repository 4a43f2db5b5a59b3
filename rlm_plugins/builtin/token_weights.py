"""c: token weights of ℓ (hook ``rlm_token_weights``). Without gradient; several are multiplied."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins import hookimpl
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.knobs import Share
from rlm_plugins.lazy import torch


def mask_truncated(truncated: Bool[torch.Tensor, "B"]) -> Float[torch.Tensor, "B 1"]:
    """c = 0 where truncated, else 1: truncation at the length limit is not evidence of a wrong answer.

    DAPO's overlong filtering, arXiv 2503.14476 §3.4. They stay in every denominator; GRPOConfig's
    ``mask_truncated_completions`` removes them from it as well.

    >>> mask_truncated(torch.tensor([True, False])).tolist()
    [[0.0], [1.0]]
    """
    return (~truncated).float().unsqueeze(1)


def top_entropy(
    step_batch: Batch, step_batch_rows: Int[torch.Tensor, "B"], mask: Bool[torch.Tensor, "B T"], *, share: Share = 0.2
) -> Float[torch.Tensor, "B T"]:
    """c = 1 where H ≥ quantile(H, 1 − share), else 0: only high-entropy ("forking") tokens.

    The 80/20 rule, arXiv 2506.01939: tokens at or above the (1 − `share`) quantile, interpolated. It is over the
    trained tokens of the complete optimizer step, however it is split (TRL takes the quantile of each micro-batch). The
    other tokens stay in every denominator. Ties are included together.

    >>> step_batch = Batch(entropy=torch.tensor([[0.1, 2.0], [0.3, 1.0]]), mask=torch.ones(2, 2, dtype=torch.bool))
    >>> top_entropy(step_batch, torch.tensor([1]), step_batch.mask[1:], share=0.5).tolist()
    [[0.0, 1.0]]
    """
    entropy = step_batch.entropy[step_batch_rows, : mask.shape[1]]
    live = step_batch.entropy[step_batch.mask].float()
    if live.numel() == 0:
        return torch.zeros_like(entropy)
    return ((entropy >= quantile(live, 1 - share)) & mask).to(entropy.dtype)


def off_policy_mask(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"] | None = None,
    *,
    threshold: NonNegativeFloat,
) -> Float[torch.Tensor, "B #T"]:
    """c = 0 where Â < 0 and meanₜ (log μ − log π) > threshold, else 1: off-policy sequence masking.

    μ is the policy that sampled, and the mean is over the trained tokens of a completion. DeepSeek-V3.2, arXiv
    2512.02556; TRL's `off_policy_mask_threshold`. The sampler is the inference engine where it reports log-probs (an
    unknown one adds 0), else the old policy. Masked completions stay in every denominator.

    >>> logp, old, mask = torch.tensor([[-3.0], [-3.0]]), torch.full((2, 1), -1.0), torch.ones(2, 1, dtype=torch.bool)
    >>> off_policy_mask(logp, old, torch.tensor([[1.0], [-1.0]]), mask, threshold=0.5).tolist()
    [[1.0], [0.0]]
    """
    drift = ((old_logp if rollout_logp is None else rollout_logp) - logp.detach()).nan_to_num(nan=0.0)
    mean = drift.where(mask, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1.0)
    return ((advantages >= 0) | (mean <= threshold)).to(logp.dtype)


def quantile(x: Float[torch.Tensor, "B"], share: float) -> Float[torch.Tensor, ""]:
    """Return the interpolated quantile of `x`: equal to torch.quantile bit by bit, for `x` of any length.

    (torch.quantile is limited to 2²⁴ numbers, the tokens of about two thousand completions.)

    >>> quantile(torch.tensor([4.0, 1.0, 2.0, 3.0]), 0.5).item()
    2.5
    """
    ordered, last = x.sort().values, len(x) - 1
    rank = (ordered.new_tensor(share) * last).clamp(max=last)
    below = rank.floor()
    return ordered[below.long()].lerp(ordered[rank.ceil().clamp(max=last).long()], rank - below)


@hookimpl
def rlm_token_weights() -> dict[str, object]:
    return {"mask_truncated": mask_truncated, "top_entropy": top_entropy, "off_policy_mask": off_policy_mask}
