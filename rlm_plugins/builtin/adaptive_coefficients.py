"""Coefficients that adapt: parts with a memory, which learn from each generation what is to be paid."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.batch import Log
from rlm_plugins.errors import RecipeError
from rlm_plugins.functional.kl import Estimator, kl_estimate
from rlm_plugins.lazy import torch

Unit = Literal["sequence", "token"]
Memory = dict[str, float]


class _Proportional:
    """Pays `factor` times as much: the factor grows while the policy is further off than wanted, and shrinks else."""

    def __init__(self, *, target: float, gain: float, horizon: float | None, unit: Unit) -> None:
        self.target, self.gain, self.horizon, self.unit = target, gain, horizon, unit
        self.factor = 1.0

    def update(
        self,
        old_logp: Float[torch.Tensor, "B T"],
        ref_logp: Float[torch.Tensor, "B T"],
        mask: Bool[torch.Tensor, "B T"],
    ) -> None:
        """Measures the generation: k1 of the policy that wrote it; without tokens it says nothing."""
        rows, tokens = mask.any(1).sum().item(), mask.sum().item()
        if not rows:
            return
        total = (old_logp - ref_logp).where(mask, 0.0).sum().item()
        error = total / (rows if self.unit == "sequence" else tokens) / self.target - 1
        gain = self.gain if self.horizon is None else rows / self.horizon
        self.factor *= 1 + gain * min(max(error, -0.2), 0.2)

    def state_dict(self) -> Memory:
        return {"factor": self.factor}

    def load_state_dict(self, state: Memory) -> None:
        self.factor = state["factor"]


class AdaptiveKL(_Proportional):
    """`kl` whose coefficient follows the distance itself, until that is `target`.

    Ω = f · kₙ, with f ← f · (1 + K · clip(KL / target − 1, −0.2, 0.2)) once per generation, f = 1 at first: the
    coefficient is `beta` · f. Ziegler et al., arXiv 1909.08593 §2.2, who pay in the reward (`adaptive_kl_in_reward`).
    KL is measured on the rows that teach, of all processes, before they are trained on: mean of log π_old − log π_ref.

    `target` is in nats per completion, or with `unit: token` per token: the two differ by the length, and libraries
    (verl, OpenRLHF) mean the token's. `gain` is K; with a `horizon` K is rows / `horizon`, as in the authors' code and
    verl. The factor never reaches 0: to switch the penalty off, leave it out.

    >>> part = AdaptiveKL(target=1.0)
    >>> part.update(torch.tensor([[-1.0]]), torch.tensor([[-4.0]]), torch.tensor([[True]]))  # KL is 3
    >>> round(part.factor, 3)  # 1 + 0.1 · 0.2
    1.02
    """

    def __init__(
        self,
        *,
        target: PositiveFloat,
        gain: PositiveFloat = 0.1,
        horizon: PositiveFloat | None = None,
        unit: Unit = "sequence",
        estimator: Estimator = "k3",
    ) -> None:
        super().__init__(target=target, gain=gain, horizon=horizon, unit=unit)
        self.estimator: Estimator = estimator

    def __call__(
        self, logp: Float[torch.Tensor, "B T"], ref_logp: Float[torch.Tensor, "B T"], log: Log | None = None
    ) -> Float[torch.Tensor, "B T"]:
        if log is not None:
            log("kl_factor", torch.full_like(logp, self.factor))
        return self.factor * kl_estimate(logp, ref_logp, self.estimator)


class AdaptiveKLInReward(_Proportional):
    """`kl_in_reward` whose coefficient follows the distance itself, until that is `target`.

    rₜ −= β f (log π_old − log π_ref), with f ← f · (1 + K · clip(KL / target − 1, −0.2, 0.2)) after each generation,
    f = 1 at first. Ziegler et al., arXiv 1909.08593 §2.2. The other knobs mean what they do in `adaptive_kl`.

    >>> part = AdaptiveKLInReward(beta=0.5, target=6.0)
    >>> part(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[True]])).item()
    -1.0
    """

    def __init__(
        self,
        *,
        target: PositiveFloat,
        beta: NonNegativeFloat = 0.05,
        gain: PositiveFloat = 0.1,
        horizon: PositiveFloat | None = None,
        unit: Unit = "sequence",
    ) -> None:
        super().__init__(target=target, gain=gain, horizon=horizon, unit=unit)
        self.beta = beta

    def __call__(
        self,
        old_logp: Float[torch.Tensor, "B T"],
        ref_logp: Float[torch.Tensor, "B T"],
        mask: Bool[torch.Tensor, "B T"],
    ) -> Float[torch.Tensor, "B T"]:
        return -self.beta * self.factor * (old_logp - ref_logp).where(mask, 0.0)


class AdaptiveEntropy:
    """A bonus for staying undecided that is paid only while the entropy is too low, and rises as long as it is.

    Ω = −α H(π), α = c where H̄ ≤ `target`, else 0; once per generation c ← min(c + `delta`, `most`) where
    H̄ ≤ `target`, else max(c − `delta`, `least`). Skywork-OR1, arXiv 2505.22312; the rule is that of TRL 1.16's
    `use_adaptive_entropy`, whose names are entropy_target, entropy_coef_delta, …_max, …_min and, for `start`,
    entropy_coef.

    H̄ is the mean entropy of the trained tokens of a generation, of all processes, before it is trained on. (TRL
    measures each optimiser step while it is trained on, and so acts one step later; its bonus is a token mean, ours is
    summed up like the rest of the loss.) `beta` multiplies α: 1 means what Skywork and TRL mean.

    Pitfall: `target` must be near the entropy a run begins with (the metric `entropy`). Far below it nothing ever
    happens; above it c climbs to `most`, and the policy dissolves.

    >>> part = AdaptiveEntropy(target=0.5, delta=0.25)
    >>> part.update(torch.tensor([[0.2, 9.0]]), torch.tensor([[True, False]]))
    >>> part(torch.tensor([[2.0]])).item()
    -0.5
    """

    def __init__(
        self,
        *,
        target: NonNegativeFloat = 0.2,
        delta: PositiveFloat = 0.005,
        start: NonNegativeFloat = 0.0,
        least: NonNegativeFloat = 0.0,
        most: NonNegativeFloat = 1.0,
    ) -> None:
        if not least <= start <= most:
            raise RecipeError(f"start ({start}) must lie between least ({least}) and most ({most})")
        self.target, self.delta, self.least, self.most = target, delta, least, most
        self.coefficient, self.paid = start, False

    def __call__(self, entropy: Float[torch.Tensor, "B T"], log: Log | None = None) -> Float[torch.Tensor, "B T"]:
        paid = self.coefficient if self.paid else 0.0
        if log is not None:
            log("entropy_coefficient", torch.full_like(entropy, paid))
        return -paid * entropy

    def update(self, entropy: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> None:
        """Measures the generation; without tokens it says nothing."""
        if not mask.any():
            return
        self.paid = entropy[mask].mean().item() <= self.target
        moved = self.coefficient + (self.delta if self.paid else -self.delta)
        self.coefficient = min(max(moved, self.least), self.most)

    def state_dict(self) -> Memory:
        return {"coefficient": self.coefficient, "paid": float(self.paid)}

    def load_state_dict(self, state: Memory) -> None:
        self.coefficient, self.paid = state["coefficient"], bool(state["paid"])
