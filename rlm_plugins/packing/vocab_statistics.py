"""What the whole distribution over the vocabulary says of each token, from the pass that gives its log-probability."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch.nn.functional import linear

from rlm_plugins.kernels.fused_logprob_head import chunks
from rlm_plugins.packing.forward import forward_with_head
from rlm_plugins.packing.layout import Layout

TOLD = ("self_certainty", "top2_margin")
"""What a scoring part may name, and TRL's fused head does not give."""
NAMES = ("old_logp", "entropy", *TOLD)
"""All that is read."""


def read_vocabulary(
    model: Any,
    ids: Int[torch.Tensor, "B W"],
    there: Int[torch.Tensor, "B W"],
    width: int,
    *,
    temperature: float,
    rows: int,
) -> dict[str, Float[torch.Tensor, "B width"]]:
    """`old_logp`, `entropy`, `self_certainty` and `top2_margin` of the last `width` tokens, without gradient.

    It asks for the logits themselves, so any scaling or cap of a model holds; `rows` · `width` · V of them are in
    memory at a time.

    Args:
        model: The policy, as the trainer holds it.
        ids: Prompts, padded on the left, and completions, padded on the right.
        there: 1 where a token is no padding.
        width: Of the completions.
        temperature: The logits are divided by it.
        rows: How many are read at once.
    """
    found: list[dict[str, torch.Tensor]] = []
    with torch.no_grad():
        for some, seen in zip(ids.split(rows), there.split(rows), strict=True):
            logits = model(input_ids=some, attention_mask=seen, logits_to_keep=width + 1, use_cache=False).logits
            told = tell(logits[:, -width - 1 : -1].float() / temperature, some[:, -width:])
            here = seen[:, -width:].bool()
            found.append({name: x.where(here, 0.0) for name, x in told.items()})
    return {name: torch.cat([each[name] for each in found]) for name in found[0]}


def read_packed(
    model: Any, parts: Iterable[Layout], *, temperature: float
) -> dict[str, Float[torch.Tensor, "B width"]]:
    """The same of rows without padding, each prompt once, and a few logits at a time.

    Args:
        model: A policy that takes packed rows.
        parts: All the rows.
        temperature: The logits are divided by it.
    """

    def head(
        hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        told = [
            tell(linear(hidden[some], weight, bias)[None].float() / temperature, target[None, some])
            for some in chunks(hidden, weight)
        ]
        return tuple(torch.cat([each[name][0] for each in told]) for name in NAMES)

    found = dict.fromkeys(NAMES, torch.zeros(()))
    with torch.no_grad():
        for layout in parts:
            told = forward_with_head(model, layout, partial(head, target=layout.target))
            found = {name: found[name].to(x.device) + layout.unpack(x) for name, x in zip(NAMES, told, strict=True)}
    return found


def tell(
    logits: Float[torch.Tensor, "B T V"],
    tokens: Int[torch.Tensor, "B T"],
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """log π(y), H(π), KL(U ‖ π) = −log V − mean_v log π(v), and p₁ − p₂ of the two likeliest tokens.

    What has probability 0 is taken for e⁻¹⁰⁰⁰, so that a token that is ruled out makes nothing infinite.

    >>> tell(torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.long))["self_certainty"].item()
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
