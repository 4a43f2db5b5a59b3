"""Knobs and coefficients that move: schedules and adaptive rules, in a recipe, in a part, and in the log of a run."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_equations import equation, loss_batch, part
from fixtures_trainer import clipped, interrupted, trainer
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.adaptive_kl import AdaptiveKL, AdaptiveKLInReward
from rlm_testing import batches
from trl import GRPOConfig, GRPOTrainer

from rlm_plugins.builtin import penalties, policy_losses
from rlm_plugins.builtin.penalties import AdaptiveEntropy, entropy, kl
from rlm_plugins.equation import knobs
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe import load
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import objective as formula
from rlm_plugins.rollout.prompt_source import OnDemand
from rlm_plugins.run.launch import launch
from rlm_plugins.trainer import EquationTrainer

REGISTRY = Registry()


@given(st.floats(-9, 9), st.floats(-9, 9), st.integers(1, 50), st.integers(0, 9), st.sampled_from(knobs.SHAPES))
def test_schedule_is_monotonic(start: float, end: float, over: int, after: int, shape: str) -> None:
    way = Schedule(start, end, over, after, shape)
    values = [way.at(step) for step in range(after + over + 3)]
    assert set(values[: after + 1]) == {start}
    assert set(values[after + over :]) == {end}
    signs = {(b > a) - (b < a) for a, b in itertools.pairwise(values) if abs(b - a) > 1e-12}
    assert signs <= {(end > start) - (end < start)}, "it turned round"


def test_shapes() -> None:
    line, wave = (Schedule(0.0, 1.0, 4, shape=shape) for shape in knobs.SHAPES)
    assert [line.at(step) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [wave.at(step) for step in range(5)] == pytest.approx([0.0, 0.1464466, 0.5, 0.8535534, 1.0])


def test_integer_schedule_stays_integer() -> None:
    def longest(loss: torch.Tensor, *, tokens: int = 3) -> torch.Tensor:
        return loss

    bound = part("rlm_aggregators", longest, tokens={"from": 8, "to": 12, "over": 8})
    values = [knobs.value_at(bound.knobs["tokens"], step) for step in range(9)]
    assert values == [8, 8, 9, 10, 10, 10, 11, 12, 12]
    assert all(isinstance(value, int) for value in values)


@pytest.mark.parametrize(
    ("knobs_given", "problem", "place"),
    [
        ({"epsilon": {"from": 0.2, "to": -0.3, "over": 9}}, "got the number -0.3", "epsilon.to"),
        ({"epsilon": {"from": -0.2, "to": 0.3, "over": 9}}, "got the number -0.2", "epsilon.from"),
        ({"epsilon": {"from": "x", "to": 0.3, "over": 9}}, "got the string 'x'", "epsilon.from"),
        ({"epsilon": {"form": 0.2, "to": 0.3, "over": 9}}, "unknown key 'form'", "epsilon"),
        ({"epsilon": {"from": 0.2, "to": 0.3}}, "the key 'over' is missing", "epsilon.over"),
        ({"epsilon": {"from": 0.2, "to": 0.3, "over": 0}}, "got the number 0", "epsilon.over"),
        ({"epsilon": {"from": 0.2, "to": 0.3, "over": 9, "shape": "cos"}}, "got the string 'cos'", "epsilon.shape"),
        ({"epsilonn": {"from": 0.2, "to": 0.3, "over": 9}}, "unknown knob 'epsilonn'", "epsilonn"),
    ],
)
def test_errors_name_their_place(knobs_given: dict[str, Any], problem: str, place: str) -> None:
    with pytest.raises(RecipeError, match=problem) as caught:
        REGISTRY.find("rlm_policy_losses", "clip").bind(knobs_given, where="algorithm.policy_loss")
    assert caught.value.where == f"algorithm.policy_loss.{place}"


@pytest.mark.parametrize(
    ("hook", "name", "knob", "why"),
    [
        ("rlm_models", "scratch", "layers", "model is outside"),
        ("rlm_environments", "addition", "slip", "environment is outside"),
        ("rlm_rewards", "length", "target", "rewards is outside"),
    ],
)
def test_a_part_outside_the_optimizer_steps_takes_none(hook: str, name: str, knob: str, why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        REGISTRY.find(hook, name).bind({knob: {"from": 1, "to": 2, "over": 3}})


def test_a_class_and_the_order_of_an_epoch_take_none() -> None:
    class Remembering:
        def __init__(self, *, rate: float = 0.5) -> None:
            pass

        def __call__(self, rewards: torch.Tensor) -> torch.Tensor:
            return rewards

    def by_epoch(size: int, epoch: int, *, power: float = 1.0) -> list[int]:
        return list(range(size))

    def by_count(count: int, *, power: float = 1.0) -> list[int]:
        return [int(power) + i for i in range(count)]

    moving = {"from": 1.0, "to": 2.0, "over": 3}
    with pytest.raises(RecipeError, match="it is stateful"):
        part("rlm_advantages", Remembering, rate=moving)
    with pytest.raises(RecipeError, match="the order of an epoch"):
        part("rlm_samplers", by_epoch, power=moving)
    on_demand = OnDemand(part("rlm_samplers", by_count, power=moving), size=9, seed=0)
    assert [on_demand.take(2, step) for step in (0, 3)] == [[1, 2], [2, 3]]


def test_a_part_gets_the_value_of_its_step() -> None:
    seen: list[float] = []

    def bold(ratio: torch.Tensor, advantages: torch.Tensor, *, cap: float = 2.0) -> torch.Tensor:
        seen.append(cap)
        return -ratio.clamp(max=cap) * advantages

    bound = part("rlm_policy_losses", bold, cap={"from": 1.0, "to": 3.0, "over": 4})
    batch = replace(loss_batch(), ratio=torch.ones(2, 3, requires_grad=True))
    for step in (0, 1, 4, 9):
        bound(replace(batch, step=step))
    assert seen == [1.0, 1.5, 3.0, 3.0]
    with pytest.raises(RlmError, match="requires a step"):
        bound(batch)


def test_a_coefficient_moves() -> None:
    cost = part("rlm_penalties", penalties.kl_old, estimator="k2")
    moving = replace(cost, options={"beta": Schedule(0.0, 2.0, 4)})
    batch = loss_batch(old_logp=torch.zeros(2, 3))
    plain = objective(batch, equation())
    paid = objective(batch, equation(penalties=[replace(cost, options={"beta": 1.0})])) - plain
    for step, beta in ((0, 0.0), (2, 1.0), (4, 2.0)):
        found = objective(replace(batch, step=step), equation(penalties=[moving])) - plain
        assert found.item() == pytest.approx(beta * paid.item(), rel=1e-6)


RECIPE = """
model: {name: scratch, layers: 1, hidden: 32, heads: 2, intermediate: 64}
environment: {name: addition, digits: 2, train_rows: 40, test_rows: 10}
rewards: [accuracy]
algorithm:
  name: grpo
  policy_loss: {epsilon: {from: 0.2, to: 0.3, over: 2}}
  penalties: [{name: entropy, beta: {from: 0.1, to: 0, over: 4, shape: cosine, after: 1}}]
evaluation: null
trainer:
  max_steps: 3
  per_device_train_batch_size: 8
  num_generations: 4
  max_completion_length: 4
  logging_steps: 1
  save_strategy: "no"
"""


def test_schedule_round_trips_through_yaml(tmp_path: Path) -> None:
    file = tmp_path / "moving.yaml"
    file.write_text(RECIPE)
    recipe = load(file)
    stages = compose(recipe, REGISTRY)
    algorithm = resolved(stages, recipe)["algorithm"]
    assert algorithm["policy_loss"]["epsilon"] == {"from": 0.2, "to": 0.3, "over": 2, "after": 0, "shape": "linear"}
    assert algorithm["penalties"][0]["beta"] == {"from": 0.1, "to": 0, "over": 4, "after": 1, "shape": "cosine"}
    assert json.loads(json.dumps(algorithm)) == algorithm
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(resolved(stages, recipe)))
    (stage,) = compose(load(again), REGISTRY)
    assert stage.equation == stages[0].equation
    line = formula(vars(stage.equation))
    assert "clip(w, 1−(0.2→0.3)" in line
    assert "(0.1→0)" in line


@pytest.mark.slow
def test_a_run_logs_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "moving.yaml"
    file.write_text(RECIPE)
    launch(file, [], out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    epsilon = [line["schedule/policy_loss.clip.epsilon"] for line in lines if "loss" in line]
    assert epsilon == pytest.approx([0.2, 0.25, 0.3])
    beta = [line["schedule/penalties.entropy.beta"] for line in lines if "loss" in line]
    assert beta == pytest.approx([Schedule(0.1, 0.0, 4, 1, "cosine").at(step) for step in range(3)])


def test_duplicate_names_are_numbered() -> None:
    moving = replace(part("rlm_penalties", penalties.kl), options={"beta": Schedule(0, 1, 2)})
    clip = part("rlm_policy_losses", policy_losses.clip)
    found = knobs.schedules_by_name([("penalties", moving), ("policy_loss", clip), ("penalties", moving)])
    assert list(found) == ["penalties.kl.beta", "penalties.kl.beta#2"]


def measured(batch: Batch, unit: str) -> float | None:
    """Compute the KL by its definition, token by token."""
    rows = []
    for i, live in enumerate(batch.mask.tolist()):
        gaps = [(batch.old_logp[i, t] - batch.ref_logp[i, t]).item() for t, on in enumerate(live) if on]
        rows += [gaps] if gaps else []
    if not rows:
        return None
    return sum(map(sum, rows)) / (len(rows) if unit == "sequence" else sum(map(len, rows)))


# ---- KL


@given(st.lists(batches(), min_size=1, max_size=4), st.floats(0.05, 3.0), st.sampled_from(["sequence", "token"]))
def test_the_factor_follows_ziegler(generations: list[Batch], target: float, unit: Any) -> None:
    parts = [AdaptiveKL(target=target, unit=unit), AdaptiveKLInReward(target=target, unit=unit)]
    expected = 1.0
    for batch in generations:
        for adaptive in parts:
            adaptive.update(batch.old_logp, batch.ref_logp, batch.mask)
        if (actual := measured(batch, unit)) is not None:
            expected *= 1 + 0.1 * max(-0.2, min(0.2, actual / target - 1))
    assert [adaptive.factor for adaptive in parts] == pytest.approx([expected] * 2, rel=1e-9)


def test_horizon_scales_the_gain_by_its_share_of_completions() -> None:
    """lm-human-preferences: β ← β (1 + e · n / horizon)."""
    old, ref, mask = torch.zeros(4, 2), torch.full((4, 2), -9.0), torch.ones(4, 2, dtype=torch.bool)
    adaptive = AdaptiveKL(target=1.0, horizon=100.0)
    adaptive.update(old, ref, mask)
    assert adaptive.factor == pytest.approx(1 + 0.2 * 4 / 100)
    mask[0] = False
    adaptive.update(old, ref, mask)
    assert adaptive.factor == pytest.approx((1 + 0.2 * 4 / 100) * (1 + 0.2 * 3 / 100))


@given(batches(), st.sampled_from(["k1", "k2", "k3"]))
def test_penalty_is_the_factor_times_kl(batch: Batch, estimator: Any) -> None:
    adaptive = AdaptiveKL(target=1.0, estimator=estimator)
    adaptive.factor = 1.5
    logp = batch.logp.requires_grad_()
    found, fixed = adaptive(logp, batch.ref_logp), kl(logp, batch.ref_logp, estimator=estimator)
    torch.testing.assert_close(found, 1.5 * fixed)
    slopes = [torch.autograd.grad(x.sum(), logp, retain_graph=True)[0] for x in (found, 1.5 * fixed)]
    torch.testing.assert_close(slopes[0], slopes[1])


# ---- entropy


@given(st.lists(st.floats(0, 0.6), max_size=30), st.floats(0, 0.1))
def test_the_coefficient_follows_its_rule(seen: list[float], start: float) -> None:
    adaptive, c = AdaptiveEntropy(target=0.3, delta=0.02, start=start, maximum=0.1), start
    one, mask = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    for value in seen:
        adaptive.update(one * value, mask)
        c = min(c + 0.02, 0.1) if value <= 0.3 else max(c - 0.02, 0.0)
        assert adaptive.coefficient == c
        assert adaptive(one).item() == (-c if value <= 0.3 else 0.0)


@pytest.mark.slow
def test_the_coefficient_is_trls(tmp_path: Path) -> None:
    """Stock TRL on a tiny model logs the same entropy and coefficient at every step."""
    target = 3.0
    rule = {"use_adaptive_entropy": True, "entropy_target": target, "entropy_coef_delta": 0.01, "entropy_coef": 0.02}
    stock = GRPOTrainer(
        model=tiny.model(),
        args=GRPOConfig(**tiny.settings(output_dir=str(tmp_path), max_steps=12, learning_rate=3e-2, **rule)),
        reward_funcs=[lambda completions, **_: [float(len(text)) for text in completions]],
        train_dataset=tiny.problems(),
        processing_class=tiny.tokenizer(),
    )
    stock.train()
    logs = [line for line in stock.state.log_history if "entropy_coef" in line]
    adaptive = AdaptiveEntropy(target=target, delta=0.01, start=0.02)
    for line in logs:
        adaptive.update(torch.tensor([[line["entropy"]]], dtype=torch.float64), torch.tensor([[True]]))
        assert adaptive.coefficient == pytest.approx(line["entropy_coef"])
    assert len({line["entropy"] <= target for line in logs}) == 2, "it was never above, or never below"


@given(batches())
def test_the_bonus(batch: Batch) -> None:
    adaptive = AdaptiveEntropy(target=99.0, delta=0.25)
    h = batch.entropy.requires_grad_()
    assert not adaptive(h).any(), "nothing is paid before anything was measured"
    adaptive.update(batch.entropy, batch.mask)
    due = 0.25 if batch.mask.any() else 0.0
    torch.testing.assert_close(adaptive(h), due * entropy(h))
    (slope,) = torch.autograd.grad(adaptive(h).sum(), h)
    assert torch.equal(slope, torch.full_like(h, -due))


def test_bounds_that_contradict_each_other() -> None:
    with pytest.raises(RecipeError, match=r"expected minimum ≤ start ≤ maximum, got 0\.0, 0\.5, 0\.1"):
        part("rlm_penalties", AdaptiveEntropy, start=0.5, maximum=0.1)


# ---- in a run


def adapting(folder: Path) -> EquationTrainer:
    """Return a trainer with three adaptive parts, measured on every generation; only sampling is random."""
    in_reward = Part("rlm_shapers", "adaptive_kl_in_reward", "test", AdaptiveKLInReward)
    in_loss = Part("rlm_penalties", "adaptive_kl", "test", AdaptiveKL)
    undecided = Part("rlm_penalties", "adaptive_entropy", "test", AdaptiveEntropy)
    parts = clipped(
        shapers=[in_reward.bind({"target": 0.05})],
        penalties=[in_loss.bind({"target": 0.05}), undecided.bind({"target": 3.129, "delta": 0.01})],
    )
    sizes = {"per_device_train_batch_size": 16, "max_steps": 6, "learning_rate": 2e-2, "beta": 1.0}
    return trainer(folder, parts, **sizes, save_strategy="steps", save_steps=2)


@pytest.mark.slow
def test_coefficient_is_updated_each_generation_and_resumed(tmp_path: Path) -> None:
    whole, again = interrupted(tmp_path, [4], adapting)
    shaper, kl_penalty, bonus = (p.state_dict() for p in whole.components.states.by_name.values())
    assert shaper == kl_penalty, "they saw the same"
    assert abs(kl_penalty["factor"] - 1) > 0
    steps = [line for line in whole.state.log_history if "loss" in line]
    factors = [line["penalties/kl_factor"] for line in steps]
    assert factors[0] == pytest.approx(0.98), "on the first generation KL is 0, which is below its target"
    assert factors[-1] == pytest.approx(kl_penalty["factor"])
    paid, c = [], 0.0
    for line in steps:  # one update per generation: what was measured before it is what it logged itself
        c = min(c + 0.01, 1.0) if line["entropy"] <= 3.129 else max(c - 0.01, 0.0)
        paid.append(c if line["entropy"] <= 3.129 else 0.0)
    assert [line["penalties/entropy_coefficient"] for line in steps] == pytest.approx(paid)
    assert len(set(paid)) > 2, "it never moved"
    assert bonus["coefficient"] == pytest.approx(c)
    assert [p.state_dict() for p in again[4].components.states.by_name.values()] == [shaper, kl_penalty, bonus]
