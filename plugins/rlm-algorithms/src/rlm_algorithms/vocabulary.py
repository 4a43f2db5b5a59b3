"""Distributions over the vocabulary from hidden states: log-probs of the top k, and divergences in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import causal_model

CHUNK = 256
"""Tokens whose logits are in memory at a time."""


@dataclass(frozen=True)
class Head:
    """Map of a model from hidden states to logits.

    Args:
        weight: (V, H).
        bias: (V,), or None.
        scale: Factor of the logits.
        softcap: Bound c of the logits, c · tanh(z / c); None: none.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    softcap: float | None

    def log_softmax(self, hidden: Float[torch.Tensor, "N H"], temperature: float) -> Float[torch.Tensor, "N V"]:
        """Return the log-probs of all tokens, in nats and float32."""
        z = linear(hidden.to(self.weight.dtype), self.weight, self.bias).float() * self.scale
        z = z if self.softcap is None else self.softcap * (z / self.softcap).tanh()
        return (z / temperature).log_softmax(-1)


def head_of(model: Any, size: int | None = None) -> Head:
    """Return the head of a causal language model, cut to the first `size` tokens."""
    base = causal_model(model)
    layer, config = base.get_output_embeddings(), base.config.get_text_config()
    if type(layer) is not torch.nn.Linear or layer.weight.shape[0] < (size or 0):
        problem = f"the head of {type(base).__name__} is no linear layer, or has fewer tokens than the policy's"
        raise RlmError(problem, where="teacher.top", hint="`top: 0` compares sampled tokens only")
    scale = getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1)
    bias = None if layer.bias is None else layer.bias[:size]
    head = Head(layer.weight[:size], bias, scale, getattr(config, "final_logit_softcapping", None))
    ids = torch.arange(1, 5, device=layer.weight.device)[None]
    with torch.no_grad():
        hidden = base.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        expected = base(input_ids=ids, use_cache=False).logits[0, :, :size].float().log_softmax(-1)
    if not torch.allclose(head.log_softmax(hidden, 1.0), expected, atol=0.05):
        problem = f"{type(base).__name__} computes its logits in another way than from its last hidden state alone"
        raise RlmError(problem, where="teacher.top", hint="`top: 0` compares sampled tokens only")
    return head


def logprobs_at(
    hidden: Float[torch.Tensor, "*rows H"], head: Head, ids: Int[torch.Tensor, "*rows K"], temperature: float
) -> Float[torch.Tensor, "*rows K"]:
    """Return the log-probs of some tokens; with gradient the logits are computed again in the backward pass."""

    def of_chunk(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return head.log_softmax(states, temperature).gather(1, tokens)

    chunks = zip(hidden.flatten(0, -2).split(CHUNK), ids.flatten(0, -2).long().split(CHUNK), strict=True)
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(of_chunk, *x, use_reentrant=False) for x in chunks]).view(ids.shape)  # type: ignore[arg-type]
    return torch.cat([of_chunk(*x) for x in chunks]).view(ids.shape)


def likeliest(hidden: Float[torch.Tensor, "*rows H"], head: Head, k: int) -> Int[torch.Tensor, "*rows k"]:
    """Return the ids of the k likeliest tokens."""
    k = min(k, head.weight.shape[0])
    chunks = [head.log_softmax(x, 1.0).topk(k, -1).indices for x in hidden.flatten(0, -2).split(CHUNK)]
    return torch.cat(chunks).view(*hidden.shape[:-1], k).int()


def vocabulary_divergence(
    hidden: Float[torch.Tensor, "B T H"],
    head: Head,
    teacher_hidden: Float[torch.Tensor, "B T J"],
    teacher_head: Head,
    *,
    beta: float,
    temperature: float,
) -> Float[torch.Tensor, "B T"]:
    """Return the β-divergence of teacher and policy by TRL's kernel, which never holds all logits.

    It is KL(T ‖ π) at β = 0, KL(π ‖ T) at β = 1, else β KL(T ‖ M) + (1 − β) KL(π ‖ M) with M = (1 − β) π + β T.
    """
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    result, _ = ChunkedDivergenceFunction.apply(  # type: ignore[no-untyped-call]
        hidden.flatten(0, 1),
        head.weight,
        head.bias,
        teacher_hidden.flatten(0, 1).to(head.weight.dtype),
        teacher_head.weight,
        teacher_head.bias,
        beta,
        temperature,
        head.scale,
        head.softcap,
        teacher_head.scale,
        teacher_head.softcap,
    )
    return result.view(hidden.shape[:2])  # type: ignore[no-any-return]
