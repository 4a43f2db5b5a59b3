"""Influence of a step on later ones: the attention that their tokens pay to its tokens (AttnRL)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from jaxtyping import Float

from rlm_plugins.lazy import torch


def forward_influence(
    attention: Float[torch.Tensor, "H S S"], spans: Sequence[tuple[int, int]], *, gap: int = 4
) -> Float[torch.Tensor, "H K"]:
    """Compute the forward context influence of each step in each head of a layer.

    FCIₖ = Σⱼ mean of attention[q, t] over q in step j and t in step k, over the steps j ≥ k + gap. arXiv 2509.26628.

    Args:
        attention: Attention from each position (second axis) to each earlier one (third axis).
        spans: Start and end of each step in the sequence, none empty.
        gap: Distance of the nearest step that counts.

    Returns:
        Per head and step; 0 for steps that no later one is far enough from.

    >>> forward_influence(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]), [(0, 1), (1, 2)], gap=1).tolist()
    [[0.25, 0.0]]
    """
    weights = attention.new_zeros(len(spans), attention.shape[-1])
    for step, (start, end) in enumerate(spans):
        weights[step, start:end] = 1.0 / (end - start)
    between = torch.einsum("jq,hqt,kt->hjk", weights, attention, weights)
    return torch.tril(between, diagonal=-gap).sum(1)


def influences(
    policy: Any, prompt_ids: Sequence[int], completion_ids: Sequence[int], ends: Sequence[int], *, gap: int
) -> list[float]:
    """Return the influence of each step of a completion: the largest over all layers and heads.

    Args:
        policy: The model; its attention weights are computed by the plain implementation.
        prompt_ids: Token ids; the prompt is no step.
        completion_ids: Token ids.
        ends: Number of tokens after which each step ends.
        gap: See :func:`forward_influence`.
    """
    offset, device = len(prompt_ids), next(policy.parameters()).device
    spans = [(offset + start, offset + end) for start, end in pairwise((0, *ends))]
    if len(spans) <= gap:
        return [0.0] * len(spans)
    ids = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
    with plain_attention(policy), torch.no_grad():
        layers = policy(input_ids=ids, output_attentions=True, use_cache=False).attentions
    largest = torch.stack([forward_influence(layer[0].float(), spans, gap=gap).amax(0) for layer in layers])
    result: list[float] = largest.amax(0).tolist()
    return result


@contextmanager
def plain_attention(policy: Any) -> Iterator[None]:
    """Use the implementation of attention that returns its weights, in evaluation mode, inside a ``with`` block."""
    base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    before, training = base.config._attn_implementation, policy.training
    base.set_attn_implementation("eager")
    policy.eval()
    try:
        yield
    finally:
        base.set_attn_implementation(before)
        policy.train(training)
