"""Parts with running reward estimates per prompt: SPO's baseline, prioritized sampling, a curriculum."""

from __future__ import annotations

from typing import Annotated, Any

from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins.annotations import RewardName, named
from rlm_plugins.functional.value_tracker import ValueTracker, prompt_keys, standardize
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


class _Tracking:
    """A stateful part whose state is a value tracker."""

    tracker: ValueTracker

    def state_dict(self) -> dict[str, Any]:
        return self.tracker.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tracker.load_state_dict(state)


class TrackedBaseline(_Tracking):
    """Reward minus a running estimate per prompt, standardized over the batch (SPO); requires no groups.

    Âᵢ = (aᵢ − mean) / (std + eps), with aᵢ = rᵢ − v̂(x) and v̂ as it was *before* this visit. Single-stream Policy
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
