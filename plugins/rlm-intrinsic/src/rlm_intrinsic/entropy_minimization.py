"""EM-FT: the token entropy of the policy's own samples, minimized directly (policy loss and algorithm)."""

from __future__ import annotations

from jaxtyping import Float

from rlm_plugins.lazy import torch
from rlm_plugins.specs import Algorithm


def token_entropy_loss(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Lower the entropy of the policy at each token of its samples, with the gradient through the entropy.

    ℓ = H(πₜ). EM-FT, arXiv 2505.15134 eq. 2, and one-shot entropy minimization, 2505.20282. Neither reward nor
    advantage is used. Unlike the shaper `token_entropy` it compares no samples: the entropy itself is differentiated,
    and the choice of the sample is not.

    >>> token_entropy_loss(torch.tensor([[0.5, 0.1]])).tolist()
    [[0.5, 0.10000000149011612]]
    """
    return 1.0 * entropy


em_ft = Algorithm(
    about="The token entropy of the policy's samples is minimized: no reward, no advantage.",
    source="EM-FT, arXiv 2505.15134; on one prompt: one-shot entropy minimization, 2505.20282",
    pitfalls="It needs a reward part for the held-out measure only: `rewards: [{name: accuracy, weight: 0}]`. The "
    "one-shot paper takes 10 steps on a single prompt (`environment: {max_rows: 1}`), with the prompt whose accuracy "
    "varies most, and reports that more steps harm: the policy collapses to its most likely answers, right or "
    "wrong. Monitor `entropy`, and stop when held-out accuracy falls. Its script has a learning rate of 2e-5 "
    "for all weights.",
    names={"policy_loss": "L_EM, token-level entropy"},
    advantage={"name": "group_relative", "scale": "none"},
    policy_loss="token_entropy_loss",
    aggregator="token_mean",
)
