"""What remembers problem by problem: SPO's baseline, and samplers that choose by what came of a problem before."""

from __future__ import annotations

from typing import Annotated, Any

from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins.annotations import RewardName, named
from rlm_plugins.functional.value_tracker import ValueTracker, prompt_keys, standardize
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


class _Remembers:
    """A part whose memory is a tracker."""

    tracker: ValueTracker

    def state_dict(self) -> dict[str, Any]:
        return self.tracker.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tracker.load_state_dict(state)


class TrackedBaseline(_Remembers):
    """The reward, seen from what the problem has brought so far, and measured over the batch: no group is needed.

    Âᵢ = (aᵢ − mean) / (std + eps), with aᵢ = rᵢ − v̂(x) and v̂ as it was *before* this visit. Single-stream Policy
    Optimization, arXiv 2509.13232 §3; mean and std (n − 1) over the rows of the batch.

    v̂ = α / (α + β) per problem. After a visit: α ← ρ α + r, β ← ρ β + (1 − r), ρ = clip(2^(−D / half_distance),
    keep_least, keep_most): the farther the policy has moved since it last met the problem, the less its past says.
    D is the mean |Δ log π| over the tokens of the answer given then, as in the authors' code (the paper: a KL), and
    costs one more pass over every generation. Before the first visit v̂ = `start`, with the weight of `weight`
    completions (0.5 and 1 are the code's without offline values; the paper starts from 8 answers per problem).

    Advantages and samplers of this file that are given the same knobs remember the same. All aᵢ equal: exactly 0.

    >>> baseline = TrackedBaseline(start=0.5, weight=1.0, half_distance=0.06, keep_least=0.5, keep_most=1.0, eps=0.0)
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
        keep_least: Share = 0.875,
        keep_most: Share = 0.96,
        eps: NonNegativeFloat = 1e-8,
    ) -> None:
        self.tracker = ValueTracker(
            start=start, weight=weight, half_distance=half_distance, keep_least=keep_least, keep_most=keep_most
        )
        self.eps = eps

    def __call__(
        self, rewards: Float[torch.Tensor, "B"], prompt_index: Int[torch.Tensor, "B"]
    ) -> Float[torch.Tensor, "B"]:
        expected = self.tracker.values(prompt_keys(prompt_index)).to(rewards)
        return standardize(rewards - expected, self.eps)

    def update(
        self,
        rewards: Float[torch.Tensor, "B"],
        prompt_index: Int[torch.Tensor, "B"],
        policy_drift: Float[torch.Tensor, "B"],
    ) -> None:
        self.tracker.update(prompt_keys(prompt_index), rewards, policy_drift)


class Prioritised(_Remembers):
    """Problems that are neither solved nor hopeless are met more often.

    weight(x) = √(v̂(1 − v̂)) + floor, v̂ being the running success rate of x by the named `reward`: the std of a coin
    that succeeds so often. Single-stream Policy Optimization, arXiv 2509.13232 §3.3, floor 0.05. No problem twice in a
    draw. (The authors' code draws from one batch of the data loader; here every problem takes part.)

    v̂ is that of `tracked_baseline`, by the same knobs; how far the policy has moved counts where another part has it
    measured, and ρ = keep_most elsewhere. Rewards belong between 0 and 1; v̂ outside counts as the nearer end.

    >>> sampler = Prioritised(reward="accuracy", floor=0.05, start=0.5)
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
        keep_least: Share = 0.875,
        keep_most: Share = 0.96,
    ) -> None:
        self.tracker = ValueTracker(
            start=start, weight=weight, half_distance=half_distance, keep_least=keep_least, keep_most=keep_most
        )
        self.reward, self.floor = reward, floor

    def __call__(self, size: int, count: int, draw: int, seed: int) -> list[int]:
        success = self.tracker.values(range(size)).clamp(0, 1)
        weights = (success * (1 - success)).sqrt() + self.floor
        chosen: list[int] = torch.multinomial(weights, count, generator=_generator(seed, draw)).tolist()
        return chosen

    def update(
        self,
        prompt_index: Int[torch.Tensor, "B"],
        named_rewards: dict[str, torch.Tensor],
        policy_drift: Float[torch.Tensor, "B"] | None = None,
    ) -> None:
        rewards = named(named_rewards, self.reward, where="sampler: prioritised.reward")
        self.tracker.update(prompt_keys(prompt_index), rewards, policy_drift)


class Curriculum(_Remembers):
    """Problems as hard as they should be come first: a curriculum by what the policy can do now.

    first = {x : |success(x) − target| ≤ band} ∪ {x never met}, in random order, then the others, the nearest to the
    target first. success(x) is the mean of the named `reward` over the visits of x, each counting `keep` times less
    with every later one. `target` and `band` are on the scale of that reward, whatever it is.

    A problem that has left the band would be met again only when nothing else is left, and its success rate would age:
    so `explore` of every draw are taken from all problems alike. AdaRFT (arXiv 2504.05520) also takes the problems
    nearest to a target, by difficulties rated beforehand, and moves the target; here success is measured and the target
    stays, since success moves with the policy.

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
        self.tracker = ValueTracker(start=target, weight=1e-9, keep_least=keep, keep_most=keep)
        self.reward, self.target, self.band, self.explore = reward, target, band, explore

    def __call__(self, size: int, count: int, draw: int, seed: int) -> list[int]:
        shuffled = torch.randperm(size, generator=_generator(seed, draw))
        distance = (self.tracker.values(shuffled.tolist()) - self.target).abs()  # 0 where it was never met
        order = shuffled[(distance - self.band).clamp(min=0).argsort(stable=True)].tolist()
        explored = shuffled[-int(self.explore * count) :].tolist() if int(self.explore * count) else []
        chosen: list[int] = list(dict.fromkeys([*explored, *order]))[:count]
        return chosen

    def update(self, prompt_index: Int[torch.Tensor, "B"], named_rewards: dict[str, torch.Tensor]) -> None:
        rewards = named(named_rewards, self.reward, where="sampler: curriculum.reward")
        self.tracker.update(prompt_keys(prompt_index), rewards)


def _generator(seed: int, draw: int) -> torch.Generator:
    """Random numbers that depend on the run's seed and the number of the draw alone."""
    return torch.Generator().manual_seed(seed * 1_000_003 + draw)
