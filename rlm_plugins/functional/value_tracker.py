"""Running estimates of the mean reward of each prompt, with forgetting as the policy changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float, Int

from rlm_plugins.lazy import torch


class ValueTracker:
    """α and β of a Beta distribution per prompt; v̂ = α / (α + β) is its expected reward.

    After a visit: α ← ρ α + Σ r and β ← ρ β + Σ (1 − r), with ρ = clip(2^(−D / half_distance), min_decay, max_decay),
    D being the policy drift since the previous visit. Single-stream Policy Optimization, arXiv 2509.13232.
    Since r + (1 − r) = 1, v̂ is the mean reward of all visits, each counting ρ times less with every later one. That
    holds for rewards of any range, but only rewards of 0 and 1 make it a Beta distribution.

    Args:
        start: v̂ of a prompt before its first visit.
        weight: Number of completions that this prior counts for. (α = weight · start.)
        half_distance: D after which a visit counts half, in nats per token.
        min_decay, max_decay: Bounds of ρ.

    >>> tracker = ValueTracker(start=0.5, weight=1.0, min_decay=0.875, max_decay=1.0)
    >>> tracker.update([7], torch.tensor([1.0]), torch.tensor([0.0]))
    >>> tracker.values([7, 8]).tolist()  # (0.5 + 1) / (1 + 1)
    [0.75, 0.5]
    """

    def __init__(
        self,
        *,
        start: float = 0.5,
        weight: float = 1.0,
        half_distance: float = 0.06,
        min_decay: float = 0.875,
        max_decay: float = 0.96,
    ) -> None:
        self._prior = weight * start, weight * (1 - start)
        self._half_distance, self._bounds = half_distance, (min_decay, max_decay)
        self.pairs: dict[int, tuple[float, float]] = {}

    def values(self, prompts: Iterable[int]) -> Float[torch.Tensor, "B"]:
        """Return the current v̂ of each prompt."""
        pairs = [self.pairs.get(prompt, self._prior) for prompt in prompts]
        return torch.tensor([alpha / (alpha + beta) for alpha, beta in pairs], dtype=torch.float64, device="cpu")

    def update(
        self,
        prompts: Iterable[int],
        rewards: Float[torch.Tensor, "B"],
        policy_drift: Float[torch.Tensor, "B"] | None = None,
    ) -> None:
        """Update α and β of every prompt that was visited.

        Args:
            prompts: Prompt index of each completion; completions of one prompt are one visit.
            rewards: Reward of each completion; NaN where it has none.
            policy_drift: D of each completion's prompt; None: unknown, ρ is `max_decay`.
        """
        distance = torch.zeros_like(rewards) if policy_drift is None else policy_drift
        decay = (2.0 ** (-distance.double() / self._half_distance)).clamp(*self._bounds).tolist()
        visits: dict[int, list[tuple[float, float]]] = {}
        for prompt, reward, rho in zip(prompts, rewards.double().tolist(), decay, strict=True):
            if reward == reward:  # not NaN
                visits.setdefault(prompt, []).append((reward, rho))
        for prompt, visit in visits.items():
            alpha, beta = self.pairs.get(prompt, self._prior)
            rho = visit[0][1]
            total = sum(reward for reward, _ in visit)
            self.pairs[prompt] = rho * alpha + total, rho * beta + len(visit) - total

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"problems": list(self.pairs), "pairs": [list(pair) for pair in self.pairs.values()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        pairs = [(alpha, beta) for alpha, beta in state["pairs"]]
        self.pairs = dict(zip(state["problems"], pairs, strict=True))


def standardize(x: Float[torch.Tensor, "B"], eps: float) -> Float[torch.Tensor, "B"]:
    """(x − mean) / (std + eps) over all completions (n − 1); exactly 0 if they are all equal.

    >>> standardize(torch.tensor([1.0, 3.0]), 0.0)
    tensor([-0.7071,  0.7071])
    """
    if len(x) < 2 or x.max() == x.min():
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std() + eps)


def prompt_keys(prompt_index: Int[torch.Tensor, "B"]) -> list[int]:
    """Return prompt indices as the keys of a tracker."""
    keys: list[int] = prompt_index.tolist()
    return keys
