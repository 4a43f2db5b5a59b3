"""Coefficients of the KL that keep it at a target: stateful parts, updated from each generation batch."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.equation.batch import Log
from rlm_plugins.equation.statistics import Estimator, kl_estimate
from rlm_plugins.lazy import torch

State = dict[str, float]
Unit = Literal["sequence", "token"]


class _ProportionalController:
    """A coefficient that grows while the KL to the reference exceeds its target, and shrinks otherwise."""

    def __init__(self, *, target: float, gain: float, horizon: float | None, unit: Unit) -> None:
        self.target, self.gain, self.horizon, self.unit = target, gain, horizon, unit
        self.factor = 1.0

    def update(
        self,
        old_logp: Float[torch.Tensor, "B T"],
        ref_logp: Float[torch.Tensor, "B T"],
        mask: Bool[torch.Tensor, "B T"],
    ) -> None:
        """Update the factor from the KL (k1) of the sampling policy; a batch without tokens changes nothing."""
        sequences, tokens = mask.any(1).sum().item(), mask.sum().item()
        if not sequences:
            return
        total = (old_logp - ref_logp).where(mask, 0.0).sum().item()
        error = total / (sequences if self.unit == "sequence" else tokens) / self.target - 1
        gain = self.gain if self.horizon is None else sequences / self.horizon
        self.factor *= 1 + gain * min(max(error, -0.2), 0.2)

    def state_dict(self) -> State:
        return {"factor": self.factor}

    def load_state_dict(self, state: State) -> None:
        self.factor = state["factor"]


class AdaptiveKL(_ProportionalController):
    """`kl` with a coefficient that is controlled to keep the KL at `target`.

    Ω = f · {estimator k1 → d; k2 → d²/2; k3 → (exp(−d) + d − 1); abs → |d|}, with d = log π − log π_ref, f = f_old (1 +
    K · clip(KL / target − 1, −0.2, 0.2)), K = {horizon null → gain; else → B / horizon} and KL = {unit sequence →
    mean_i(Σₜ e); token → mean e}, e = log π_old − log π_ref: f is 1 at first, the coefficient is `beta` · f. Ziegler et
    al., arXiv 1909.08593 §2.2, with it in the reward (`adaptive_kl_in_reward`). KL is that of all ranks before the
    update.

    `target` is in nats per completion, or with `unit: token` per token: the two differ by the length, and libraries
    (verl, OpenRLHF) use the token's. `gain` is K; with a `horizon` K is completions / `horizon`, as in the authors'
    code and verl. The factor never reaches 0: to switch the penalty off, leave it out.

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


class AdaptiveKLInReward(_ProportionalController):
    """`kl_in_reward` with a coefficient that is controlled to keep the KL at `target`.

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
