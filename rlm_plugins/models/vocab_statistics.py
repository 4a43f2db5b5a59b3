"""Statistics of the whole next-token distribution, from the forward pass that computes log-probs."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float, Int

VOCAB_STATISTICS = ("self_certainty", "top2_margin")
"""Statistics that scoring parts may name, and that the fused head does not compute."""
NAMES = ("old_logp", "entropy", *VOCAB_STATISTICS)
"""Names of everything that :func:`token_statistics` returns."""


def padded_statistics(
    model: Any,
    input_ids: Int[torch.Tensor, "B W"],
    attention_mask: Int[torch.Tensor, "B W"],
    logits_to_keep: int,
    *,
    temperature: float,
    batch_size: int,
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """Compute the statistics of completions by padded forward passes, without gradient.

    It uses the logits themselves, so scaling and soft caps of a model apply. `batch_size` · T · `vocab_size` of them
    are in memory at a time.

    Args:
        model: The policy, as the trainer holds it.
        input_ids: Prompts, padded on the left, and completions, padded on the right.
        attention_mask: 1 for tokens, 0 for padding.
        logits_to_keep: Length T of the completions.
        temperature: Divides the logits.
        batch_size: Sequences per forward pass.
    """
    width, results = logits_to_keep, []
    with torch.no_grad():
        for ids, mask in zip(input_ids.split(batch_size), attention_mask.split(batch_size), strict=True):
            logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1, use_cache=False).logits
            statistics = token_statistics(logits[:, -width - 1 : -1].float() / temperature, ids[:, -width:])
            is_token = mask[:, -width:].bool()
            results.append({name: x.where(is_token, 0.0) for name, x in statistics.items()})
    return {name: torch.cat(list(map(itemgetter(name), results))) for name in NAMES}


def token_statistics(
    logits: Float[torch.Tensor, "B T V"], tokens: Int[torch.Tensor, "B T"]
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """log π(y), H(π), KL(U ‖ π) = −log V − mean_v log π(v), and p₁ − p₂ of the two likeliest tokens.

    A probability of 0 counts as e⁻¹⁰⁰⁰, so that a token that is ruled out does not make a statistic infinite.

    >>> token_statistics(torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.long))["self_certainty"].item()
    0.0
    """
    z = torch.log_softmax(logits, -1).clamp(min=-1000.0)
    likeliest = z.topk(2, -1).values.exp()
    return {
        "old_logp": z.gather(-1, tokens.unsqueeze(-1)).squeeze(-1),
        "entropy": -(z.exp() * z).sum(-1),
        "self_certainty": -z.mean(-1) - math.log(z.shape[-1]),
        "top2_margin": likeliest[..., 0] - likeliest[..., 1],
    }
