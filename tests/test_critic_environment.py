"""An environment of two tokens with known values: the critic learns them, and PPO the best policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from datasets import Dataset
from fixtures_critic import KINDS, critic, trainer

from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.trainer import EquationTrainer

WORDS = tiny.tokenizer("01ab")
ZERO, ONE, *LETTERS = WORDS("01ab")["input_ids"]
END = WORDS.eos_token_id
ANSWERS = [END, ZERO, ONE]
UNSAID = [WORDS.pad_token_id, WORDS.unk_token_id, *LETTERS]
"""Questions are no answers: a model without absolute positions cannot tell `a` from `a` answered by `a`."""
BEST = 1.25


def reward_of(completion_ids: list[list[int]]) -> list[float]:
    """Return 1 for a first token of one, ½ for zero, and ¼ more if the second token is the other digit."""
    front = {ONE: 1.0, ZERO: 0.5, END: 0.0}
    return [front[ids[0]] + 0.25 * (sorted(ids) == [ZERO, ONE]) for ids in completion_ids]


def exact(equation_trainer: EquationTrainer, question: int) -> tuple[float, list[float]]:
    """Compute by enumeration the value before the first token, and after a zero and a one."""
    ids = torch.tensor([[question, first] for first in (ZERO, ONE)])
    with torch.no_grad():
        chance = equation_trainer.model(ids).logits[:, :, ANSWERS].softmax(-1)
    pay = torch.tensor([reward_of([[first, second] for second in ANSWERS]) for first in (ZERO, ONE)])
    after = (chance[:, 1] * pay).sum(1)
    return (chance[0, 0, 1:] * after).sum().item(), after.tolist()


def values_of(equation_trainer: EquationTrainer, question: int) -> tuple[float, list[float]]:
    """Return the critic's values at the same places."""
    answers = torch.tensor([[ZERO, END], [ONE, END]])
    rows = {"prompt_ids": torch.full((2, 1), question), "completion_ids": answers}
    rows |= {"prompt_mask": torch.ones_like(rows["prompt_ids"]), "completion_mask": torch.ones_like(answers)}
    values = equation_trainer.components.critic.before_update(rows)
    assert values is not None
    return values[0, 0].item(), values[:, 1].tolist()


def environment_spec(
    folder: Path, kind: str, *, rate: float | Schedule, warmup_steps: int = 0, **changes: Any
) -> EquationTrainer:
    """Return a trainer on two questions with answers of two tokens."""
    settings = {
        "max_completion_length": 2,
        "per_device_train_batch_size": 256,
        "num_generations": 1,
        "generation_kwargs": {"suppress_tokens": UNSAID},
        "score": reward_of,
        "words": WORDS,
        "model": tiny.model(words=len(WORDS)),
        "problems": Dataset.from_dict({"prompt": ["a", "b"] * 128}),
    }
    return trainer(folder, critic(kind, learning_rate=rate, warmup_steps=warmup_steps), **{**settings, **changes})


RATES = {"shared": 1e-2, "head": 3e-2, "separate": 1e-2}
"""All weights move in a separate critic: at 3e-2 it forgets what it reads, and says the same of everything."""


@pytest.mark.parametrize(
    "kind", [kind if kind == "shared" else pytest.param(kind, marks=pytest.mark.full) for kind in KINDS]
)
def test_the_critic_converges_to_the_exact_values(tmp_path: Path, kind: str) -> None:
    rate = Schedule(RATES[kind], RATES[kind] / 30, over=55)
    equation_trainer = environment_spec(tmp_path, kind, rate=rate, max_steps=60, warmup_steps=60, num_iterations=3)
    equation_trainer.train()
    for question in LETTERS:
        before, after = exact(equation_trainer, question)
        assert after[1] - after[0] > 0.4, "a constant would do"
        found_before, found_after = values_of(equation_trainer, question)
        assert found_before == pytest.approx(before, abs=0.05)
        assert found_after == pytest.approx(after, abs=0.05)


def test_ppo_finds_the_best_policy(tmp_path: Path) -> None:
    """With one answer per problem, only the critic is a baseline.

    All weights are trained: the random head of the model, if frozen, could not separate two answers.
    """
    equation_trainer = environment_spec(tmp_path, "separate", rate=3e-3, max_steps=20, learning_rate=1e-2, lora=None)
    assert max(exact(equation_trainer, question)[0] for question in LETTERS) < 0.7
    equation_trainer.train()
    assert min(exact(equation_trainer, question)[0] for question in LETTERS) > 0.97 * BEST
