"""r′: curiosity, the perplexity of each step of a completion (hook ``rlm_shapers``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float

from rlm_intrinsic.answer_likelihoods import Regex, step_ends
from rlm_plugins.equation.batch import Log
from rlm_plugins.lazy import torch

MOST = 15
"""Largest number of steps, as for `path_consistency`."""
LARGEST = 20.0
"""Bound of the log of a perplexity."""


def curiosity(
    rewards: Float[torch.Tensor, "B"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    completion_ids: Sequence[Sequence[int]],
    tokenizer: Any,
    log: Log | None = None,
    *,
    separator: Regex = r"\n",
    above: float | None = 2.0,
    weight: float = 0.4,
) -> Float[torch.Tensor, "B"]:
    """Add a bonus for completions whose steps have evenly high perplexity.

    r′ = r + weight · 1[c > above], or weight · c for null, where c = meanₛ ( exp(−meanₜ log π) − log(1 + KL(p ‖ U)^⅓) )
    over the steps s. The first term is the perplexity of the step's tokens. p are their log-probs divided by the sum,
    so the second term is large if few tokens have most of the negative log-likelihood. CoVo, arXiv 2506.08745, the
    curiosity of its code (`kl_divergence` in score.py): 0.4 above 2. With `path_consistency` of `threshold` 0.5 it is
    the whole reward.

    It opposes the entropy collapse of `path_consistency`. Alone it rewards improbable text. A completion without
    trained tokens gets 0.
    """
    values = []
    for logp, trained, ids in zip(old_logp, mask, completion_ids, strict=True):
        texts = [str(tokenizer.decode([token])) for token in ids]
        values.append(_of_completion(logp[trained], texts, separator))
    scores = torch.stack(values).to(rewards)
    if log is not None:
        log("curiosity", scores.mean().item())
    return rewards + weight * (scores if above is None else (scores > above).to(rewards.dtype))


def _of_completion(logp: torch.Tensor, texts: Sequence[str], separator: str) -> torch.Tensor:
    if not len(logp):
        return logp.new_zeros(())
    ends = [end for end in step_ends(texts[: len(logp)], separator, MOST) if end < len(logp)]
    sizes = [end - start for start, end in zip([0, *ends], [*ends, len(logp)], strict=True)]
    return torch.stack(
        [(-step.mean()).clamp(max=LARGEST).exp() - _unevenness(step) for step in logp.split(sizes)]
    ).mean()


def _unevenness(logp: torch.Tensor) -> torch.Tensor:
    """Return log(1 + KL(p ‖ U)^⅓) of p ∝ −log π; 0 where all tokens are certain."""
    total = logp.sum()
    if total == 0:
        return total
    share = logp / total
    divergence = (share * (share * len(logp)).clamp(min=1e-30).log()).sum().clamp(min=0.0)
    return torch.log1p(divergence ** (1 / 3))
