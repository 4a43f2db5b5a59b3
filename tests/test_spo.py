"""Groups of one, stateful samplers and kept completions, in real runs and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_equations import equation_of
from fixtures_trainer import OFTEN, interrupted, logged, trainer
from rlm_algorithms.tracked_values import TrackedBaseline

from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.config import GRPOConfig

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
