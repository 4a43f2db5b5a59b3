"""What is expected of each problem: a running estimate of its reward that forgets as the policy moves on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float, Int

from rlm_plugins.lazy import torch


class ValueTracker:
    """α and β of a Beta distribution per problem; v̂ = α / (α + β) is the reward expected of it.

    After a visit: α ← ρ α + Σ r and β ← ρ β + Σ (1 − r), with ρ = clip(2^(−D / half_distance), keep_least, keep_most),
    D being how far the policy has moved since the visit before. Single-stream Policy Optimization, arXiv 2509.13232.
    Since r + (1 − r) = 1, v̂ is the mean reward of all visits, each counting ρ times less with every later one: that
    holds for rewards of any range, though only those of 0 and 1 make it a Beta distribution.

    Args:
        start: v̂ of a problem nobody has visited.
        weight: How many completions that guess counts for. (α = weight · start.)
        half_distance: D after which a visit counts half, in nats per token.
        keep_least, keep_most: Bounds of ρ.

    >>> tracker = ValueTracker(start=0.5, weight=1.0, keep_least=0.875, keep_most=1.0)
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
        keep_least: float = 0.875,
        keep_most: float = 0.96,
    ) -> None:
        self._first = weight * start, weight * (1 - start)
        self._half_distance, self._bounds = half_distance, (keep_least, keep_most)
        self.pairs: dict[int, tuple[float, float]] = {}

    def values(self, problems: Iterable[int]) -> Float[torch.Tensor, "B"]:
        """v̂ of each problem, as it is known now."""
        pairs = [self.pairs.get(problem, self._first) for problem in problems]
        return torch.tensor([alpha / (alpha + beta) for alpha, beta in pairs], dtype=torch.float64, device="cpu")

    def update(
        self,
        problems: Iterable[int],
        rewards: Float[torch.Tensor, "B"],
        moved: Float[torch.Tensor, "B"] | None = None,
    ) -> None:
        """What came of a visit.

        Args:
            problems: Of each row; rows of one problem are one visit.
            rewards: Of each row; NaN where it was not scored.
            moved: D of each row's problem; None: not known, nothing is forgotten but by `keep_most`.
        """
        distance = torch.zeros_like(rewards) if moved is None else moved
        keep = (2.0 ** (-distance.double() / self._half_distance)).clamp(*self._bounds).tolist()
        visits: dict[int, list[tuple[float, float]]] = {}
        for problem, reward, rho in zip(problems, rewards.double().tolist(), keep, strict=True):
            if reward == reward:  # scored
                visits.setdefault(problem, []).append((reward, rho))
        for problem, seen in visits.items():
            alpha, beta = self.pairs.get(problem, self._first)
            rho = seen[0][1]
            gained = sum(reward for reward, _ in seen)
            self.pairs[problem] = rho * alpha + gained, rho * beta + len(seen) - gained

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"problems": list(self.pairs), "pairs": [list(pair) for pair in self.pairs.values()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        pairs = [(alpha, beta) for alpha, beta in state["pairs"]]
        self.pairs = dict(zip(state["problems"], pairs, strict=True))


def standardize(x: Float[torch.Tensor, "B"], eps: float) -> Float[torch.Tensor, "B"]:
    """(x − mean) / (std + eps) over all rows (n − 1); exactly 0 where they are all equal.

    >>> standardize(torch.tensor([1.0, 3.0]), 0.0)
    tensor([-0.7071,  0.7071])
    """
    if len(x) < 2 or x.max() == x.min():
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std() + eps)


def prompt_keys(problem: Int[torch.Tensor, "B"]) -> list[int]:
    """The problems as the keys of a tracker."""
    found: list[int] = problem.tolist()
    return found
