"""Running reward estimates per prompt: SPO's baseline, prioritized sampling, a curriculum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.equation.knobs import RewardName, Share, named
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
        return {"problems": list(self.pairs), "pairs": [list(pair) for pair in self.pairs.values()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
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


class _Tracking:
    """A stateful part whose state is a value tracker."""

    tracker: ValueTracker

    def state_dict(self) -> dict[str, Any]:
        return self.tracker.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tracker.load_state_dict(state)


class TrackedBaseline(_Tracking):
    """Reward minus a running estimate per prompt, standardized over the batch (SPO); requires no groups.

    Âᵢ = (aᵢ − mean a) / (std a + eps), with aᵢ = rᵢ − v̂: v̂ of the prompt *before* this visit. Single-stream Policy
    Optimization, arXiv 2509.13232 §3; mean and std (n − 1) over the completions of the batch.

    v̂ = α / (α + β) per prompt. After a visit: α ← ρ α + r, β ← ρ β + (1 − r), ρ = clip(2^(−D / half_distance),
    min_decay, max_decay): the larger the policy drift since the previous visit, the less earlier rewards count.
    D is the mean |Δ log π| over the tokens of the previous completion, as in the authors' code (the paper: a KL), and
    costs an additional forward pass. Before the first visit v̂ = `start`, with the weight of `weight` completions (0.5
    and 1 are the code's without offline values; the paper starts from 8 completions per prompt).

    Parts of this file with equal knobs have equal v̂. All aᵢ equal: exactly 0.

    >>> baseline = TrackedBaseline(start=0.5, weight=1.0, half_distance=0.06, min_decay=0.5, max_decay=1.0, eps=0.0)
    >>> problems, rewards = torch.tensor([0, 1]), torch.tensor([1.0, 0.0])
    >>> baseline(rewards, problems)
    tensor([ 0.7071, -0.7071])
    >>> baseline.update(rewards, problems, torch.zeros(2))
    >>> baseline.tracker.values([0, 1]).tolist()
    [0.75, 0.25]
    """

    def __init__(
        self,
        *,
        start: Share = 0.5,
        weight: PositiveFloat = 1.0,
        half_distance: PositiveFloat = 0.06,
        min_decay: Share = 0.875,
        max_decay: Share = 0.96,
        eps: NonNegativeFloat = 1e-8,
    ) -> None:
        self.tracker = ValueTracker(
            start=start, weight=weight, half_distance=half_distance, min_decay=min_decay, max_decay=max_decay
        )
        self.eps = eps

    def __call__(
        self, rewards: Float[torch.Tensor, "B"], prompt_index: Int[torch.Tensor, "B"]
    ) -> Float[torch.Tensor, "B"]:
        baseline = self.tracker.values(prompt_keys(prompt_index)).to(rewards)
        return standardize(rewards - baseline, self.eps)

    def observer(self) -> Any:
        from rlm_algorithms.policy_drift import PolicyDrift

        return PolicyDrift()

    def update(
        self,
        rewards: Float[torch.Tensor, "B"],
        prompt_index: Int[torch.Tensor, "B"],
        policy_drift: Float[torch.Tensor, "B"],
    ) -> None:
        self.tracker.update(prompt_keys(prompt_index), rewards, policy_drift)


class Prioritized(_Tracking):
    """Prompts that are neither solved nor hopeless are sampled more often.

    weight(x) = √(v̂(1 − v̂)) + floor, v̂ being the running success rate of x by the named `reward`: the std of a
    Bernoulli variable. Single-stream Policy Optimization, arXiv 2509.13232 §3.3, floor 0.05. Sampling is without
    replacement. (The authors' code samples from one batch of the data loader; here from all prompts.)

    v̂ is that of `tracked_baseline`, with the same knobs; the policy drift is used if another part requires it, and
    ρ = max_decay otherwise. Rewards should be between 0 and 1; v̂ is clamped to that range.

    >>> sampler = Prioritized(reward="accuracy", floor=0.05, start=0.5)
    >>> sampler.update(torch.tensor([0, 1]), {"accuracy": torch.tensor([1.0, 0.0])})
    >>> sorted(sampler(size=3, count=3, draw=0, seed=0))
    [0, 1, 2]
    """

    def __init__(
        self,
        *,
        reward: RewardName = "accuracy",
        floor: PositiveFloat = 0.05,
        start: Share = 0.5,
        weight: PositiveFloat = 1.0,
        half_distance: PositiveFloat = 0.06,
        min_decay: Share = 0.875,
        max_decay: Share = 0.96,
    ) -> None:
        self.tracker = ValueTracker(
            start=start, weight=weight, half_distance=half_distance, min_decay=min_decay, max_decay=max_decay
        )
        self.reward, self.floor = reward, floor

    def __call__(self, size: int, count: int, draw: int, seed: int) -> list[int]:
        success = self.tracker.values(range(size)).clamp(0, 1)
        weights = (success * (1 - success)).sqrt() + self.floor
        indices: list[int] = torch.multinomial(weights, count, generator=_generator(seed, draw)).tolist()
        return indices

    def update(
        self,
        prompt_index: Int[torch.Tensor, "B"],
        named_rewards: dict[str, torch.Tensor],
        policy_drift: Float[torch.Tensor, "B"] | None = None,
    ) -> None:
        rewards = named(named_rewards, self.reward, where="sampler: prioritized.reward")
        self.tracker.update(prompt_keys(prompt_index), rewards, policy_drift)


class Curriculum(_Tracking):
    """Prompts whose success rate is near a target come first: a curriculum by current ability.

    first = {x : |success(x) − target| ≤ band} ∪ {x never visited}, in random order, then the others, the nearest to the
    target first. success(x) is the mean of the named `reward` over the visits of x, each counting `keep` times less
    with every later one. `target` and `band` are on the scale of that reward, whatever it is.

    A prompt outside the band would be sampled only after all others, and its success rate would be outdated. So the
    share `explore` of every batch is drawn uniformly from all prompts. AdaRFT (arXiv 2504.05520) also takes the prompts
    nearest to a target, by difficulties rated beforehand, and moves the target; here success is measured, and the
    target is fixed, since success changes with the policy.

    >>> sampler = Curriculum(reward="accuracy", target=0.5, band=0.3, keep=0.5, explore=0.0)
    >>> sampler.update(torch.tensor([0, 1, 2]), {"accuracy": torch.tensor([1.0, 0.5, 0.0])})
    >>> sorted(sampler(size=5, count=3, draw=0, seed=0))  # 1 is in the band, 3 and 4 are new
    [1, 3, 4]
    """

    def __init__(
        self,
        *,
        reward: RewardName = "accuracy",
        target: float = 0.5,
        band: NonNegativeFloat = 0.3,
        keep: Share = 0.5,
        explore: Share = 0.1,
    ) -> None:
        self.tracker = ValueTracker(start=target, weight=1e-9, min_decay=keep, max_decay=keep)
        self.reward, self.target, self.band, self.explore = reward, target, band, explore

    def __call__(self, size: int, count: int, draw: int, seed: int) -> list[int]:
        shuffled = torch.randperm(size, generator=_generator(seed, draw))
        distance = (self.tracker.values(shuffled.tolist()) - self.target).abs()  # 0 if never visited
        order = shuffled[(distance - self.band).clamp(min=0).argsort(stable=True)].tolist()
        explored = shuffled[-int(self.explore * count) :].tolist() if int(self.explore * count) else []
        indices: list[int] = list(dict.fromkeys([*explored, *order]))[:count]
        return indices

    def update(self, prompt_index: Int[torch.Tensor, "B"], named_rewards: dict[str, torch.Tensor]) -> None:
        rewards = named(named_rewards, self.reward, where="sampler: curriculum.reward")
        self.tracker.update(prompt_keys(prompt_index), rewards)


def _generator(seed: int, draw: int) -> torch.Generator:
    """Return an RNG that depends on the run's seed and the index of the draw only."""
    return torch.Generator().manual_seed(seed * 1_000_003 + draw)
