"""SPO: its tracker, baseline and samplers against plain Python, in real runs and after a resume."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_equations import equation_of
from fixtures_trainer import OFTEN, interrupted, logged, trainer
from rlm_algorithms.tracked_values import Curriculum, Prioritized, TrackedBaseline, ValueTracker

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.config import GRPOConfig


def by_hand(visits: list[tuple[float, float]], start: float, weight: float) -> tuple[float, float]:
    """Compute α and β after visits (reward, D), by the formula of the paper."""
    alpha, beta = weight * start, weight * (1 - start)
    for reward, moved in visits:
        rho = min(max(2 ** (-moved / 0.06), 0.875), 0.96)
        alpha, beta = rho * alpha + reward, rho * beta + (1 - reward)
    return alpha, beta


VISITS = [(1.0, 0.0), (0.0, 0.005), (1.0, 0.3), (1.0, 0.01)]


def test_tracked_baseline_equals_the_formula() -> None:
    tracker = ValueTracker(start=0.3, weight=8.0)
    for reward, moved in VISITS:
        tracker.update([4], torch.tensor([reward]), torch.tensor([moved]))
    assert tracker.pairs[4] == pytest.approx(by_hand(VISITS, 0.3, 8.0), rel=1e-6)
    alpha, beta = tracker.pairs[4]
    assert tracker.values([4, 5]).tolist() == pytest.approx([alpha / (alpha + beta), 0.3])


def test_expected_is_a_discounted_mean_for_any_reward_range() -> None:
    tracker = ValueTracker(start=0.0, weight=1e-12, min_decay=0.5, max_decay=0.5)
    for reward in (-3.0, 5.0, 2.0):
        tracker.update([0], torch.tensor([reward]))
    expected = (2.0 + 5.0 / 2 - 3.0 / 4) / (1 + 1 / 2 + 1 / 4)
    assert tracker.values([0]).item() == pytest.approx(expected)


def test_completions_of_a_prompt_count_as_one_visit() -> None:
    tracker = ValueTracker(weight=2.0)
    tracker.update([1, 2, 1, 2], torch.tensor([1.0, math.nan, 0.0, math.nan]), torch.tensor([9.0, 9.0, 9.0, 9.0]))
    assert tracker.pairs == {1: (0.875 + 1, 0.875 + 1)}


# The lines of verl-recipe's spo/spo_ray_trainer.py, run on rewards and trackers of our own.


@pytest.mark.parametrize("seed", range(5))
def test_baseline_precedes_the_update(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = (torch.rand(7, generator=generator) < 0.5).double()
    problems = torch.randperm(20, generator=generator)[:7]
    part = TrackedBaseline()
    first = part(rewards, problems)
    raw = [r - 0.5 for r in rewards.tolist()]
    spread = len(set(raw)) > 1
    expected = [(a - statistics.mean(raw)) / (statistics.stdev(raw) + 1e-8) if spread else 0.0 for a in raw]
    assert first.tolist() == pytest.approx(expected)
    assert torch.equal(part(rewards, problems), first), "asking teaches nothing"
    moved = torch.rand(7, generator=generator, dtype=torch.float64) * 0.02
    part.update(rewards, problems, moved)
    again = 1 - rewards
    pairs = [by_hand([(r, d)], 0.5, 1.0) for r, d in zip(rewards.tolist(), moved.tolist(), strict=True)]
    raw = [r - a / (a + b) for r, (a, b) in zip(again.tolist(), pairs, strict=True)]
    expected = [(a - statistics.mean(raw)) / (statistics.stdev(raw) + 1e-8) for a in raw]
    assert part(again, problems).tolist() == pytest.approx(expected)


def test_prompts_with_equal_rewards_have_no_advantage() -> None:
    part = TrackedBaseline()
    assert part(torch.full((3,), 0.3), torch.tensor([1, 2, 3])).tolist() == [0.0, 0.0, 0.0]
    assert part(torch.tensor([1.0]), torch.tensor([1])).tolist() == [0.0]


def test_prioritized_samples_by_weight() -> None:
    sampler = Prioritized(floor=0.05)
    sampler.tracker.pairs = {0: (1.0, 1.0), 1: (9.0, 1.0), 2: (1.0, 0.0), 3: (2.0, -0.4)}
    weights = [0.5 + 0.05, 0.3 + 0.05, 0.05, 0.05]
    drawn = Counter(sampler(4, 1, draw, seed=1)[0] for draw in range(4000))
    for problem, weight in enumerate(weights):
        assert drawn[problem] / 4000 == pytest.approx(weight / sum(weights), abs=0.025)


@pytest.mark.parametrize("sampler", [Prioritized(), Curriculum()], ids=["prioritized", "curriculum"])
def test_sampling_depends_on_seed_and_round_only(sampler: Prioritized | Curriculum) -> None:
    before = torch.get_rng_state()
    first = sampler(50, 5, 3, 7)
    torch.rand(3)
    assert sampler(50, 5, 3, 7) == first
    assert sampler(50, 5, 4, 7) != first
    assert sampler(50, 5, 3, 8) != first
    torch.set_rng_state(before)


def test_policy_drift_increases_the_discount() -> None:
    one, other = Prioritized(), Prioritized()
    rewards = {"accuracy": torch.tensor([1.0])}
    one.update(torch.tensor([0]), rewards, torch.tensor([1.0]))
    other.update(torch.tensor([0]), rewards)
    assert one.tracker.pairs[0] == pytest.approx(by_hand([(1.0, 1.0)], 0.5, 1.0))
    assert other.tracker.pairs[0] == pytest.approx(by_hand([(1.0, 0.0)], 0.5, 1.0))


def test_curriculum_selects_band_and_new_prompts_then_the_nearest() -> None:
    sampler = Curriculum(target=0.5, band=0.2, explore=0.0)
    success = [0.5, 0.7, 0.75, 0.1, 1.0, 0.0]
    sampler.update(torch.arange(6), {"accuracy": torch.tensor(success)})
    assert set(sampler(8, 4, 0, 0)) == {0, 1, 6, 7}
    assert sampler(8, 8, 0, 0)[4] == 2  # 0.05 beyond the band
    assert sampler(8, 8, 0, 0)[5] == 3
    orders = {tuple(sampler(8, 4, draw, 0)) for draw in range(9)}
    assert len(orders) > 1, "in random order"


@pytest.mark.parametrize(("scale", "from_"), [(10.0, 0.0), (2.0, -1.0)])
def test_curriculum_is_on_the_scale_of_its_reward(scale: float, from_: float) -> None:
    def on_scale(share: float) -> float:
        return from_ + scale * share

    one = Curriculum(target=0.5, band=0.2, explore=0.0)
    other = Curriculum(target=on_scale(0.5), band=scale * 0.2, explore=0.0)
    for sampler, scores in ((one, [0.5, 0.6, 0.75, 0.1]), (other, [on_scale(x) for x in (0.5, 0.6, 0.75, 0.1)])):
        sampler.update(torch.arange(4), {"accuracy": torch.tensor(scores)})
    for draw in range(5):
        assert one(8, 8, draw, 0) == other(8, 8, draw, 0)


def test_curriculum_revisits_skipped_prompts() -> None:
    sampler = Curriculum(target=0.5, band=0.1, explore=0.25)
    sampler.update(torch.arange(20), {"accuracy": torch.tensor([1.0] * 10 + [0.5] * 10)})
    left = Counter(problem < 10 for draw in range(200) for problem in sampler(20, 4, draw, 0))
    assert left[True] / 800 == pytest.approx(0.25 / 2, abs=0.05)


def test_success_is_that_of_the_last_visits() -> None:
    sampler = Curriculum(keep=0.5)
    for score in (0.0, 1.0):
        sampler.update(torch.tensor([3, 3]), {"accuracy": torch.tensor([score, score])})
    assert sampler.tracker.values([3]).item() == pytest.approx(2 / 3)


def test_unknown_reward_is_rejected() -> None:
    with pytest.raises(RecipeError, match="unknown reward 'accuracy'"):
        Prioritized().update(torch.tensor([0]), {"digits": torch.tensor([1.0])})


REGISTRY = Registry()


def accuracy(completions: list[str]) -> list[float]:
    """Return 0 or 1 by the parity of the characters."""
    return [float(sum(map(ord, text)) % 2) for text in completions]


class Shown(TrackedBaseline):
    """The baseline of `spo`, which records its updates."""

    def __init__(self) -> None:
        super().__init__()
        self.lessons: list[tuple[list[int], list[float]]] = []

    def update(self, rewards: Any, prompt_index: Any, policy_drift: Any) -> None:
        self.lessons.append((prompt_index.tolist(), policy_drift.tolist()))
        super().update(rewards, prompt_index, policy_drift)


def spo(folder: Path, sampler: str = "prioritized", problems: int = 9, **changes: Any) -> EquationTrainer:
    """Return a trainer with eight prompts per generation and one completion each."""
    row = equation_of("spo", advantage=Part("rlm_advantages", "shown", "test", Shown).bind({}))
    chooser = REGISTRY.find("rlm_samplers", sampler).bind({})
    settings = {"num_generations": 1, "max_completion_length": 6, "learning_rate": 2e-2, **changes}
    return trainer(folder, row, accuracy, tiny.problems(problems), chooser, **settings)


def test_config_allows_singleton_groups_and_rejects_what_trl_rejects() -> None:
    assert GRPOConfig(**tiny.settings(output_dir="x", num_generations=1)).num_generations == 1
    assert type(GRPOConfig(**tiny.settings(output_dir="x", num_generations=1)).num_generations) is int
    assert GRPOConfig(**tiny.settings(output_dir="x")).num_generations == 4
    with pytest.raises(ValueError, match="at least 2 generations"):
        GRPOConfig(**tiny.settings(output_dir="x", num_generations=-1))
    clips = {"vllm_importance_sampling_clip_min": 3.0, "vllm_importance_sampling_clip_max": 2.0}
    with pytest.raises(ValueError, match="must be less than"):
        GRPOConfig(**tiny.settings(output_dir="x", num_generations=1, **clips))


def test_one_completion_per_prompt_trains(tmp_path: Path) -> None:
    equation_trainer = spo(tmp_path)
    before = {name: p.detach().clone() for name, p in equation_trainer.model.named_parameters()}
    equation_trainer.train()
    assert all(norm > 0 for norm in logged(equation_trainer, "grad_norm"))
    assert any(not torch.equal(p, before[name]) for name, p in equation_trainer.model.named_parameters())
    lessons = equation_trainer.equation.advantage.target.lessons
    assert [len(set(problems)) for problems, _ in lessons] == [8] * 4, "eight problems, none twice"
    assert (
        equation_trainer.equation.advantage.target.tracker.pairs
        == equation_trainer.components.prompts.source.sampler.target.tracker.pairs
    )


def test_drift_is_the_change_of_log_prob_of_the_last_completion(tmp_path: Path) -> None:
    equation_trainer = spo(tmp_path, problems=8, max_steps=3)
    answers: list[dict[int, Any]] = []
    readings: list[dict[int, float]] = []
    (drift,) = equation_trainer.observers
    measure = drift.measure

    def listening(out: dict[str, Any], index: Any) -> torch.Tensor:
        """Read the log-probs of the previous completions before the trainer measures their change."""
        if answers:
            readings.append({p: _read(equation_trainer, a) for p, a in answers[-1].items()})
        found = measure(out, index)
        answers.append(dict(drift.cache._completions))
        return found

    drift.measure = listening
    equation_trainer.train()
    lessons = equation_trainer.equation.advantage.target.lessons
    assert lessons[0][1] == [0.0] * 8, "the first time there is nothing to compare with"
    for (problems, moved), by_hand in zip(lessons[1:], readings, strict=True):
        assert min(moved) > 0
        assert moved == pytest.approx([by_hand[problem] for problem in problems], rel=1e-3, abs=1e-6)


def _read(equation_trainer: EquationTrainer, answer: Any) -> float:
    """Return the mean |Δ log π| of one completion, by a forward pass without padding."""
    ids = torch.cat([answer.prompt, answer.completion])
    with torch.no_grad():
        logits = equation_trainer.model(input_ids=ids.unsqueeze(0)).logits[0, len(answer.prompt) - 1 : -1]
    logp = logits.log_softmax(-1).gather(1, answer.completion.unsqueeze(1)).squeeze(1)
    return (logp - answer.logp).abs().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "steps"), [("prioritized", (1, 4)), ("curriculum", (3,))])
def test_resumed_equals_uninterrupted(tmp_path: Path, sampler: str, steps: tuple[int, ...]) -> None:
    how = {"max_steps": 6, **OFTEN, "problems": 20, "sampler": sampler}
    whole, again = interrupted(tmp_path, steps, lambda folder: spo(folder, **how))
    lessons = whole.equation.advantage.target.lessons
    assert any(moved > 0 for _, moves in lessons for moved in moves)
    for step, found in again.items():
        sources = found.components.prompts.source, whole.components.prompts.source
        first, second = (source.state_dict() for source in sources)
        assert first == second
        first, second = (source.sampler.target.state_dict() for source in sources)
        assert first == second
        assert found.equation.advantage.target.state_dict() == whole.equation.advantage.target.state_dict()
        assert found.equation.advantage.target.lessons == lessons[step:]
