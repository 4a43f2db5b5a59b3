"""Terms that learn from rows as from an example, or from a bare verdict. (Offered by `penalties` and `policy_losses`.)

A term counts on the rows of one source where the recipe says so: ``{name: nll, beta: 1.0, source: demonstrations}``.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.lazy import torch


def nll(
    logp: Float[torch.Tensor, "B T"],
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weighted_by: Literal["nothing", "probability", "certainty"] = "nothing",
    threshold: float | None = None,
) -> Float[torch.Tensor, "B T"]:
    """What is written is to be written again, as in supervised fine-tuning.

    Ω = −v log π: v, without gradient, is 1, π for `weighted_by` "probability", or e^−H for "certainty", H being the
    mean entropy of the row. By probability it is DFT (arXiv 2508.05629: small steps where the policy is surprised), by
    certainty the supervised term of SRFT (2506.19767: small steps on rows of which the policy is unsure).

    With a `threshold` only rows of that reward or more count: the positive-example term of VAPO (2504.05118: beta 0.1
    on right rows). 1/Z counts the other rows all the same; VAPO's mean is over the tokens of right rows alone.

    >>> logp, mask = torch.tensor([[-2.0], [-1.0]]), torch.tensor([[True], [True]])
    >>> nll(logp, torch.tensor([1.0, 0.0]), torch.zeros(2, 1), mask, threshold=1.0).tolist()
    [[2.0], [0.0]]
    """
    counts = torch.ones_like(logp) if threshold is None else (rewards >= threshold).to(logp.dtype).unsqueeze(1)
    if weighted_by == "probability":
        counts = counts * logp.detach().exp()
    if weighted_by == "certainty":
        counts = counts * (-row_mean(entropy, mask)).exp()
    return -counts * logp


def policy_shaping(
    logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    *,
    gamma: PositiveFloat | None = 0.1,
) -> Float[torch.Tensor, "B T"]:
    """The policy gradient on rows of which nobody knows how likely their writer was to write them.

    Ω = −π / (π + γ) · Â, the denominator left out for null. LUFFY, arXiv 2504.14945, with γ 0.1: the unknown
    probability of the demonstrator counts as 1, and the slope γ / (π + γ)² lets unlikely tokens pull hardest, where
    that of π itself, which SRFT has (2506.19767), lets them pull least. Â = 0: no gradient.

    >>> policy_shaping(torch.tensor([[0.1]]).log(), torch.tensor([[2.0]])).item()
    -1.0
    """
    probability = logp.exp()
    shaped = probability if gamma is None else probability / (probability + gamma)
    return -shaped * advantages


def correctness(
    logp: Float[torch.Tensor, "B T"],
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    positive_weight: NonNegativeFloat = 0.1,
    threshold: float = 1.0,
) -> Float[torch.Tensor, "B T"]:
    """Right rows are to be written again, wrong ones are not; nobody is compared with anybody.

    ℓ = −s log π: s is positive_weight · e^H for a row whose reward reaches the threshold and −1 for another, H the
    mean entropy of the row, without gradient. The self-rollout term of SRFT, arXiv 2506.19767: praise counts more
    while the policy is undecided, so that entropy does not collapse. The advantage is not looked at.

    >>> logp, mask = torch.tensor([[-2.0], [-2.0]]), torch.tensor([[True], [True]])
    >>> correctness(logp, torch.tensor([1.0, 0.0]), torch.zeros(2, 1), mask, positive_weight=0.5).tolist()
    [[1.0], [-2.0]]
    """
    right = (rewards >= threshold).unsqueeze(1)
    praised = positive_weight * row_mean(entropy, mask).clamp(max=20.0).exp()  # no vocabulary has an entropy of 20
    return -praised.where(right, -1.0) * logp


def row_mean(x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    """The mean over the trained tokens of each row, without gradient; 0 for a row without any."""
    return (x.detach() * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
