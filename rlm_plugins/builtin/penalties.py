"""βΩ: penalties and bonuses (hook ``rlm_penalties``). Per token; the recipe gives each its ``beta``."""

from __future__ import annotations

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.equation.batch import Log
from rlm_plugins.equation.statistics import Estimator, kl_estimate
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch

State = dict[str, float]


def kl(
    logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"] | None = None,
    *,
    estimator: Estimator = "k3",
    importance_weighted: bool = False,
    straight_through: bool = False,
    bound: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """KL divergence from the frozen reference policy, estimated from the sampled tokens.

    Ω = {importance_weighted true → w · k; false → k}, with {bound null → k; else → k = clip(e, −bound, bound), e} =
    {estimator k1 → d; k2 → d²/2; k3 → exp(−d) + d − 1; abs → |d|} and d = log π − log π_ref. Schulman, "Approximating
    KL divergence", 2020; GRPO uses k3, arXiv 2402.03300 eq. 4. As a loss k1 has a gradient of zero mean: use k2 or k3.
    At logp = ref_logp value and gradient of k2 and k3 are 0.

    `straight_through` keeps the value and takes the gradient of k2, the only one whose mean is that of the divergence
    (verl's `k1+`, `k3+`; OpenRLHF's `unbiased_gradient`, which weights that gradient by w).

    `importance_weighted` multiplies by w, TRL's default (`use_bias_correction_kl`); the paper does not. `bound` clamps
    the estimate, with zero gradient beyond (±10: verl for k3, OpenRLHF for k1 to k3).

    >>> kl(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), estimator="k2").item()
    2.0
    """
    estimate = kl_estimate(logp, ref_logp, estimator)
    if bound is not None:
        estimate = estimate.clamp(-bound, bound)
    if straight_through:
        unbiased = kl_estimate(logp, ref_logp, "k2")
        estimate = estimate.detach() + (unbiased - unbiased.detach())
    if not importance_weighted:
        return estimate
    if ratio is None:
        raise RecipeError(
            "`importance_weighted` requires `ratio`, which this configuration does not provide",
            where="penalties: kl.importance_weighted",
            hint="choose an `importance`, or leave this knob off",
        )
    return estimate * ratio


def kl_old(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], *, estimator: Estimator = "k3"
) -> Float[torch.Tensor, "B T"]:
    """KL divergence from the policy at the start of this update: PPO with KL penalty, arXiv 1707.06347 eq. 8.

    Ω = {estimator k1 → d; k2 → d²/2; k3 → exp(−d) + d − 1; abs → |d|}, with d = log π − log π_old.
    """
    return kl_estimate(logp, old_logp, estimator)


def _zero_gradient(trainer: object, *, estimator: str, **knobs: object) -> str:
    """Return a warning if the gradient of the estimate has mean 0."""
    is_zero = estimator == "k1" and not (knobs.get("straight_through") or knobs.get("importance_weighted"))
    return "as a loss k1 has a gradient of mean 0, only noise: set `estimator: k2` (or k3)" if is_zero else ""


kl.warn = kl_old.warn = _zero_gradient  # type: ignore[attr-defined]


def entropy(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Ω = −H(π): an entropy bonus, aggregated like the rest of the loss.

    (TRL adds its token mean, whatever the aggregator: `aggregator: micro_batch_token_mean` beside `beta`. verl uses the
    aggregator of the policy loss.)
    """
    return -entropy


def value_loss(
    values: Float[torch.Tensor, "B T"],
    old_values: Float[torch.Tensor, "B T"],
    returns: Float[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    epsilon: PositiveFloat | None = 0.2,
) -> Float[torch.Tensor, "B T"]:
    """PPO's clipped value loss; trains the critic only.

    Ω = {epsilon null → ½ (V − R)²; else → ½ max((V − R)², (V_old + clip(V − V_old, −ε, ε) − R)²)}. The code of arXiv
    1707.06347, kept by RLHF libraries: no gradient of this batch once V has moved by ε towards R. ε is in units of
    reward: 0.2 in TRL and OpenRLHF, 0.5 in verl; use null for large rewards.

    The critic has its own optimizer, so `beta` has no effect on the policy: it scales the gradient that
    `critic.max_grad_norm` clips. V = R: value and gradient are 0.

    >>> value_loss(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[2.0]]), epsilon=0.5).item()
    1.125
    """
    unclipped = (values - returns).square()
    if epsilon is None:
        return 0.5 * unclipped
    clipped = ((values - old_values).clamp(-epsilon, epsilon) + old_values - returns).square()
    if log is not None:
        log("value_clipped", (clipped > unclipped).to(values.dtype))
    return 0.5 * torch.max(unclipped, clipped)


class AdaptiveEntropy:
    """An entropy bonus that is applied only while the entropy is below `target`, and grows during that time.

    Ω = −α H(π), with α = c where mean H ≤ target, else 0 and c = min(c_old + delta, maximum) where mean H ≤ target,
    else max(c_old − delta, minimum): c and α once per generation. Skywork-OR1, arXiv 2505.22312; TRL 1.16's
    `use_adaptive_entropy`, whose names are entropy_target, entropy_coef_delta, …_max, …_min and, for `start`,
    entropy_coef.

    The mean is over the trained tokens of a generation batch, over all ranks, before the update. (TRL reacts one step
    later, and its bonus is a token mean.) `beta` multiplies α: 1 corresponds to Skywork and TRL.

    Pitfall: `target` must be near the initial entropy of the run (the metric `entropy`). Far below it the bonus stays
    0; above it c rises to `maximum`, and the policy becomes uniform.

    >>> part = AdaptiveEntropy(target=0.5, delta=0.25)
    >>> part.update(torch.tensor([[0.2, 9.0]]), torch.tensor([[True, False]]))
    >>> part(torch.tensor([[2.0]])).item()
    -0.5
    """

    def __init__(
        self,
        *,
        target: NonNegativeFloat = 0.2,
        delta: NonNegativeFloat = 0.005,
        start: NonNegativeFloat = 0.0,
        minimum: NonNegativeFloat = 0.0,
        maximum: NonNegativeFloat = 1.0,
    ) -> None:
        if not minimum <= start <= maximum:
            raise RecipeError(f"expected minimum ≤ start ≤ maximum, got {minimum}, {start}, {maximum}")
        self.target, self.delta, self.minimum, self.maximum = target, delta, minimum, maximum
        self.coefficient, self.active = start, False

    def __call__(self, entropy: Float[torch.Tensor, "B T"], log: Log | None = None) -> Float[torch.Tensor, "B T"]:
        coefficient = self.coefficient if self.active else 0.0
        if log is not None:
            log("entropy_coefficient", torch.full_like(entropy, coefficient))
        return -coefficient * entropy

    def update(self, entropy: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> None:
        """Update the coefficient from the mean entropy; a batch without tokens changes nothing."""
        if not mask.any():
            return
        self.active = entropy[mask].mean().item() <= self.target
        coefficient = self.coefficient + (self.delta if self.active else -self.delta)
        self.coefficient = min(max(coefficient, self.minimum), self.maximum)

    def state_dict(self) -> State:
        return {"coefficient": self.coefficient, "paid": float(self.active)}

    def load_state_dict(self, state: State) -> None:
        self.coefficient, self.active = state["coefficient"], bool(state["paid"])


@hookimpl
def rlm_penalties() -> dict[str, object]:
    return {
        "kl": kl,
        "kl_old": kl_old,
        "entropy": entropy,
        "value_loss": value_loss,
        "adaptive_entropy": AdaptiveEntropy,
    }
