"""`target_kl`: the remaining updates of a generation are skipped above a KL."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from fixtures_critic import critic, equation, part, trainer, weights
from fixtures_trainer import interrupted
from test_trainer_settings import CPU

from rlm_plugins.builtin.settings import TARGET_KL
from rlm_plugins.builtin.trainers import GRPO
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.trainer_settings import check

THRICE = {"num_iterations": 3, "learning_rate": 1e-2}
ADDED = {"target_kl": TARGET_KL}
AT_ONCE = 1e-9
"""Nats that one update leaves behind."""


def plain(folder: Path, **changes: Any) -> Any:
    """Return a GRPO trainer without KL."""
    return trainer(folder, None, equation(advantage=part("rlm_advantages", "group_relative"), penalties=[]), **changes)


def logged(equation_trainer: Any, name: str) -> list[float | None]:
    """Return a metric of each step."""
    return [line.get(name) for line in equation_trainer.state.log_history if "loss" in line]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(x, other[name]) for name, x in one.items() if ".critic." not in name)


def test_remaining_updates_are_skipped(tmp_path: Path) -> None:
    """The first update of a generation is never skipped; each generation starts anew."""
    once = plain(tmp_path / "a", max_steps=1, **THRICE)
    once.train()
    equation_trainer = plain(tmp_path / "b", max_steps=3, target_kl=AT_ONCE, weight_decay=0.1, **THRICE)
    reads: list[int] = []
    compute = equation_trainer._compute_loss
    equation_trainer._compute_loss = lambda *given: reads.append(equation_trainer._step) or compute(*given)
    equation_trainer.train()
    decayed = plain(tmp_path / "c", max_steps=1, weight_decay=0.1, **THRICE)
    decayed.train()
    assert same(weights(equation_trainer), weights(decayed)), "not even decay moves it"
    assert logged(equation_trainer, "update/skipped") == [0.0, 1.0, 1.0]
    assert logged(equation_trainer, "update/kl")[0] == 0.0
    assert logged(equation_trainer, "update/kl")[1] > AT_ONCE
    assert logged(equation_trainer, "update/kl")[2] is None
    assert reads == [0, 1], "what is passed over is not computed"
    equation_trainer = plain(tmp_path / "d", max_steps=4, target_kl=AT_ONCE, **THRICE)
    equation_trainer.train()
    assert logged(equation_trainer, "update/skipped") == [0.0, 1.0, 1.0, 0.0]
    assert not same(weights(equation_trainer), weights(once))


def watched(equation_trainer: Any) -> dict[int, list[float]]:
    """Record step → w − 1 − log w of every trained token that is measured."""
    seen: dict[int, list[float]] = defaultdict(list)
    (target_kl,) = equation_trainer.observers
    measure = target_kl.portion

    def measuring(inputs: Any, batch: Any, **options: Any) -> None:
        gap = (batch.logp - batch.old_logp).detach()[batch.mask].double()
        seen[batch.step] += (gap.exp() - 1 - gap).tolist()
        measure(inputs, batch, **options)

    target_kl.portion = measuring
    return seen


HALVES = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}


@pytest.mark.parametrize("pieces", [{}, HALVES], ids=["whole", "accumulated"])
def test_target_kl_uses_the_mean_over_the_update(tmp_path: Path, pieces: dict[str, int]) -> None:
    """A policy within the limit has the weights of a run without a limit."""
    free = plain(tmp_path / "a", max_steps=3, **THRICE, **pieces)
    free.train()
    equation_trainer = plain(tmp_path / "b", max_steps=3, target_kl=1e9, **THRICE, **pieces)
    seen = watched(equation_trainer)
    equation_trainer.train()
    assert same(weights(equation_trainer), weights(free))
    assert logged(equation_trainer, "update/skipped") == [0.0] * 3
    far = [fmean(seen[step]) for step in range(3)]
    assert logged(equation_trainer, "update/kl") == pytest.approx(far, rel=1e-3, abs=1e-9)
    assert far[2] > far[1] > 0
    between = (far[1] + far[2]) / 2
    equation_trainer = plain(tmp_path / "c", max_steps=4, target_kl=between, **THRICE, **pieces)
    equation_trainer.train()
    assert logged(equation_trainer, "update/skipped") == [0.0, 0.0, 1.0, 0.0]


def test_remaining_mini_batches_of_a_generation_are_skipped(tmp_path: Path) -> None:
    """A generation has two updates on different completions: the second measures the KL caused by the first."""
    equation_trainer = plain(tmp_path, max_steps=4, target_kl=AT_ONCE, steps_per_generation=2, learning_rate=1e-2)
    equation_trainer.train()
    assert logged(equation_trainer, "update/skipped") == [0.0, 1.0] * 2


def test_with_a_critic(tmp_path: Path) -> None:
    """The critic is updated in the last update before the limit, and skipped afterwards."""
    equation_trainer = trainer(tmp_path, critic(), max_steps=3, target_kl=AT_ONCE, **THRICE)
    seen: list[Any] = []
    step = equation_trainer.components.critic.optimizer.step
    equation_trainer.components.critic.optimizer.step = lambda number: (
        seen.append((number, weights(equation_trainer))) or step(number)
    )
    equation_trainer.train()
    assert [number for number, _ in seen] == [0, 1]
    assert same(seen[1][1], weights(equation_trainer))


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    often = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "target_kl": AT_ONCE, **THRICE}
    _, found = interrupted(tmp_path, [3], lambda folder: plain(folder, **often))
    again = found[3]
    assert logged(again, "update/skipped")[-3:] == [0.0, 1.0, 1.0]


def test_target_kl_requires_control_of_the_gradients(tmp_path: Path) -> None:
    equation_trainer = plain(tmp_path, target_kl=1.0, **THRICE)
    equation_trainer.is_deepspeed_enabled = True
    with pytest.raises(RlmError, match=r"target_kl.*DeepSpeed"):
        equation_trainer.observers[0].attach(equation_trainer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_kl": 0.0}, "more than 0"),
        ({"target_kl": "far"}, "a number"),
        ({"target_kl": 0.02}, "there is only one"),
        ({"target_kl": 0.02, "steps_per_generation": 3, "gradient_accumulation_steps": 2}, "there is only one"),
    ],
)
def test_target_kl_without_effect_is_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        check(GRPO().config_class(), settings, "trainer", project_defaults=CPU, added=ADDED)
    assert caught.value.where == "trainer.target_kl"
