"""`rlm signal`: figures and advice of scored groups, and group sizes without any gradient."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlm_lab.initial_signal import Group, Signal, advice, render, signal

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.part_needs import has_signal, min_group_size
from rlm_plugins.registry.part import Bound, Part

RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 32}
environment: {name: addition, digits: 2, thinking: false, train_rows: 64, test_rows: 4}
rewards: [{name: length, target: 4}, accuracy]
algorithm: grpo
trainer: {max_steps: 50, num_generations: 4, per_device_train_batch_size: 8, max_completion_length: 6}
"""


def stage(*labels: str, **settings: Any) -> Any:
    rewards = [SimpleNamespace(label=label) for label in labels]
    return SimpleNamespace(name="01-grpo", rewards=rewards, evaluation=None, settings=settings)


def group(*scores: float, ended: bool = True, other: float = 0.0) -> Group:
    named = {"right": scores, "format": [other] * len(scores)}
    texts = [str(number) for number, _ in enumerate(scores)]
    return Group([score + other for score in scores], named, [3] * len(scores), [ended] * len(scores), texts)


def unpaid() -> Group:
    return replace(group(0, 1), rewards=[0.0, 0.0])


def test_figures_of_known_groups() -> None:
    groups = [group(0, 0, 1, 0), group(0, 0, 0, 0), group(1, 1, 1, 1), group(0, 1, 1, 0, ended=False)]
    found = Signal(stage("right", "format", max_completion_length=12, max_steps=30), groups, [9.0, 2.0, 4.0]).figures()
    assert found["reward"] == pytest.approx(7 / 16)
    assert found["rewards"] == {"right": pytest.approx(7 / 16), "format": 0.0}
    assert found["pass_at_g"] == 3 / 4
    assert (found["groups_that_differ"], found["groups_without_reward"], found["groups_alike_otherwise"]) == (2, 1, 1)
    assert found["ended"] == 3 / 4
    assert found["tokens"] == 3
    assert found["seconds_per_step"] == 3.0, "without the first step, which also starts the generator"
    text = render({**found, "advice": list(advice(found))})
    assert "pass@4          75.0% of the prompts" in text
    assert "2 of 4 groups" in text
    assert "30 steps take about 1.5 min" in text
    assert "prompts have no completion" not in text


@pytest.mark.parametrize(
    ("groups", "expected_line"),
    [
        ([group(0, 0), group(0, 0)], "no completion of 2 prompts earned anything"),
        ([group(0, 1, other=1.0), *[group(1, 1, other=1.0)] * 6, group(0, 0)], ""),
        ([group(0, 1), *[group(0, 0)] * 40], "most steps of 4 prompts will have no gradient: easier prompts"),
        ([group(0, 1), *[group(1, 1)] * 40], "most steps of 4 prompts will have no gradient: harder prompts"),
        ([group(1, 1), group(1, 1)], "every completion of 2 prompts earned 1, right or wrong: a reward that depends"),
        (
            [group(0, 1), unpaid(), unpaid()],
            "in 2 of 3 groups, completions that are right and wrong by `right` earn the same",
        ),
        ([group(0, 1, ended=False)], "100% of the completions are cut: trainer.max_completion_length=48"),
        ([group(0, 1)], "the reward 'format' is 0 for all completions"),
        ([group(0, 1, other=1.0)], ""),
    ],
)
def test_the_advice_follows_from_the_figures(groups: list[Group], expected_line: str) -> None:
    found = Signal(stage("right", "format", max_completion_length=12), groups, [1.0], _prompts_per_step=4).figures()
    lines = list(advice(found))
    assert any(line.startswith(expected_line) for line in lines) if expected_line else lines == []


def test_a_recipe_is_sampled_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    found = signal(Path("r.yaml"), prompts=6)
    assert (found["prompts"], found["group_size"]) == (6, 4)
    assert found["rewards"]["accuracy"] == 0
    assert -1 <= found["rewards"]["length"] <= 0
    assert 0 < found["tokens"] <= 6
    assert found["seconds_per_step"] > 0
    (sample, *_), text = found["samples"], render(found)
    assert f"answer     {sample['columns']['answer']}\n" in text
    assert "6 prompts (whole steps of 2) × 4 completions" in text
    assert {"completion", "rewards"} == sample["completions"][0].keys()
    assert any("'accuracy' is 0 for all" in line for line in found["advice"])
    assert json.loads(json.dumps(found)) == found
    assert [file.name for file in tmp_path.iterdir()] == ["r.yaml"]


def test_a_later_stage_requires_its_start(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        RECIPE.replace("algorithm: grpo", "").split("trainer:")[0]
        + "stages: [{name: sft, algorithm: sft, trainer: {max_steps: 1}}, {name: rl, algorithm: grpo, model: {}}]\n"
    )
    with pytest.raises(RlmError, match=r"(?s)02-rl starts from the result of 01-sft, which is not trained.*rlm train"):
        signal(tmp_path / "r.yaml", ["stages.1.trainer={max_steps: 1}"])
    with pytest.raises(RlmError, match="no stage 'sft' that samples"):
        signal(tmp_path / "r.yaml", stage="sft")


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
