"""Group sizes without any gradient, probed for unknown parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlm_plugins.recipe.checks.part_needs import has_signal, min_group_size
from rlm_plugins.registry.part import Bound, Part


def centred(rewards: Any, group: Any) -> Any:
    """Return rewards minus the mean of their group."""
    return rewards - torch.stack([rewards[group == g].mean() for g in group])


def by_token(rewards: Any, mask: Any, values: Any) -> Any:
    """Return per-token advantages and returns, from a critic and without groups."""
    return (rewards.unsqueeze(1) - values).where(mask, 0.0), values


def needs_three(rewards: Any, group: Any) -> Any:
    """Raise on groups of fewer than three; return NaN for all completions but one."""
    if (group == group[0]).sum() < 3:
        raise ValueError("three rows, please")
    return torch.full_like(rewards, torch.nan).index_fill(0, torch.tensor([0]), 1.0)


def large_rewards_only(rewards: Any) -> Any:
    """Return 0 for synthetic rewards, which are on a smaller scale, so the probe has no result."""
    return (rewards > 50).float()


def random(rewards: Any) -> Any:
    """Return random advantages."""
    return torch.randn(len(rewards))


class Counting:
    """Advantage that violates the contract: `__call__` keeps state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rewards: Any) -> Any:
        self.calls += 1
        return rewards


def part(target: Any, hook: str = "rlm_advantages") -> Bound:
    return Part(hook, "mine", "guest", target).bind({})


@pytest.mark.parametrize(
    ("target", "size", "least"),
    [
        (centred, 1, 2),
        (centred, 2, 0),
        (by_token, 1, 0),
        (needs_three, 1, 3),
        (needs_three, 3, 0),
        (large_rewards_only, 1, 0),
        (random, 1, 0),
    ],
)
def test_the_least_group(target: Any, size: int, least: int) -> None:
    assert min_group_size(part(target), size, ["accuracy"]) == least


def test_filter_is_informative_where_it_keeps_a_completion() -> None:
    def several(rewards: Any, group: Any) -> Any:
        return torch.stack([(group == g).sum() > 4 for g in group])

    assert [min_group_size(part(several, "rlm_filters"), size, []) for size in (1, 4, 5)] == [5, 5, 0]


def test_probe_changes_neither_state_nor_rng() -> None:
    mine, before = part(Counting), torch.get_rng_state()
    assert has_signal(mine, 2, [])
    assert has_signal(part(random), 2, [])
    assert mine.target.calls == 0  # type: ignore[attr-defined]
    assert torch.equal(torch.get_rng_state(), before)
