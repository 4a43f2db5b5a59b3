"""Checkpoints are complete or absent, and a resumed run has the weights of an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from fixtures_trainer import OFTEN, REGISTRY, clipped, eighths, interrupted, trainer

from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.checkpoint import DurableCheckpoints, PartState, SaveWhenBufferIsEmpty, checkpoints


class Fading:
    """Stateful reward: each call returns a little less."""

    def __init__(self, *, rate: float = 0.875) -> None:
        self.rate, self.pay = rate, 1.0

    def __call__(self, completions: list[str]) -> list[float]:
        self.pay *= self.rate
        return [self.pay * reward for reward in eighths(completions)]

    def state_dict(self) -> dict[str, float]:
        return {"pay": self.pay}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.pay = state["pay"]


class RunningBaseline:
    """Stateful advantage: the baseline is the mean of all rewards so far."""

    def __init__(self, *, decay: float = 0.5) -> None:
        self.decay, self.mean = decay, 0.0

    def __call__(self, rewards: torch.Tensor) -> torch.Tensor:
        self.mean = self.decay * self.mean + (1 - self.decay) * rewards.mean().item()
        return rewards - self.mean

    def state_dict(self) -> dict[str, float]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.mean = state["mean"]


def stateful_trainer(folder: Path, **changes: Any) -> EquationTrainer:
    """Return a trainer with a stateful advantage and reward. Twelve prompts make an epoch of three steps of four."""
    equation = clipped(advantage=Part("rlm_advantages", "running", "test", RunningBaseline).bind({}))
    settings = {**OFTEN, "per_device_train_batch_size": 16, **changes}
    return trainer(folder, equation, Fading, tiny.problems(12), **settings)


def memory(equation_trainer: EquationTrainer) -> list[dict[str, float]]:
    """Return the state of its two stateful parts."""
    return [part.state_dict() for part in equation_trainer.components.states.by_name.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("buffer", "last", "steps"),
    [({}, 6, (1, 3, 5)), ({"num_iterations": 2}, 8, (2, 6)), ({"gradient_accumulation_steps": 2}, 5, (1, 4))],
    ids=["plain", "two-epochs", "accumulated"],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, buffer: dict[str, int], last: int, steps: tuple[int, ...]
) -> None:
    """The run is interrupted inside an epoch, at its end, and in the next epoch."""
    whole, again = interrupted(tmp_path, steps, lambda folder: stateful_trainer(folder, max_steps=last, **buffer))
    for found in again.values():
        assert memory(found) == memory(whole)


def test_saves_wait_until_the_buffer_is_empty() -> None:
    callback = SaveWhenBufferIsEmpty(micro_steps=4, accumulation=1)
    saved = []
    for step in range(1, 11):
        control = SimpleNamespace(should_save=step in (1, 6))
        callback.on_step_end(None, SimpleNamespace(global_step=step), control)
        saved += [step] if control.should_save else []
    assert saved == [4, 8]


class Odd(RunningBaseline):
    """Advantage with a state that no checkpoint can save."""

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "how": self.how}


@pytest.mark.parametrize("how", [lambda x: x, Path("here")], ids=["pickle", "weights only"])
def test_unsaveable_part_state_names_its_part(how: Any) -> None:
    """A path can be pickled, but is refused when the run is resumed."""
    part = Part("rlm_advantages", "odd", "guest", Odd).bind({})
    part.target.how = how  # type: ignore[attr-defined]
    with pytest.raises(PartError, match=r"(?s)guest/odd.*state_dict cannot be kept in a checkpoint.*allowed: numbers"):
        PartState(part).check()


def test_unsaveable_state_is_reported_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningBaseline, "state_dict", lambda self: {"mean": self})
    equation_trainer = stateful_trainer(tmp_path)
    with pytest.raises(PartError, match="test/running"):
        equation_trainer.train()
    assert equation_trainer.state.global_step == 0


class FakeTrainer:
    """A trainer that only saves; the second file may fail."""

    def __init__(self, run: Path, fail: bool = False) -> None:
        self.run, self.fail = run, fail
        self.args = SimpleNamespace(should_save=True, save_total_limit=2)
        self.state = SimpleNamespace(global_step=1)
        self.accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

    def _get_output_dir(self, trial: Any = None) -> str:
        return str(self.run)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        folder.mkdir(parents=True)
        (folder / "weights").write_text("w")
        if self.fail:
            raise OSError(28, "No space left on device")
        (folder / "optimizer").write_text("o")


class Saver(DurableCheckpoints, FakeTrainer):
    """The checkpoint methods of the real trainers over a fake trainer."""


def test_a_failed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    saver._save_checkpoint(None)
    saver.state.global_step, saver.fail = 2, True
    with pytest.raises(RlmError, match=r"checkpoint-2: cannot be written: No space"):
        saver._save_checkpoint(None)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-1"]
    saver.fail = False
    saver._save_checkpoint(None)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-1", "checkpoint-2"]
    assert {p.name for p in (tmp_path / "checkpoint-2").iterdir()} == {"weights", "optimizer", "checksums.json"}
    assert not (tmp_path / ".saving").exists()


def test_oldest_checkpoints_beyond_the_limit_are_deleted(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    for step in (9, 10, 11):
        saver.state.global_step = step
        saver._save_checkpoint(None)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-11"]


@pytest.mark.parametrize("looks", [False, True], ids=["by row", "looks at the whole step"])
def test_interrupted_run_without_checkpoint_restarts(
    looks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C inside a step, as in a notebook, no completion of that step is trained on."""
    term = replace(REGISTRY.find("rlm_penalties", "kl_cov").bind({"share": 0.5}), options={"beta": 1.0})
    equation, size = clipped(penalties=[term] * looks), {"per_device_train_batch_size": 4, "num_generations": 4}
    equation_trainer = trainer(tmp_path, equation, max_steps=2, gradient_accumulation_steps=2, **size)
    step, done = ["writes", "learns", "learns"], []
    write, learn = equation_trainer._generate_single_turn, equation_trainer.components.loss.of_portion

    def writes(*args: Any, **options: Any) -> Any:
        done.append("writes")
        return write(*args, **options)

    def learns(*args: Any) -> torch.Tensor:
        done.append("learns")
        if done == step:
            raise KeyboardInterrupt
        return learn(*args)

    monkeypatch.setattr(equation_trainer, "_generate_single_turn", writes)
    monkeypatch.setattr(equation_trainer.components.loss, "of_portion", learns)
    with pytest.raises(KeyboardInterrupt):
        equation_trainer.train()
    equation_trainer.train()
    assert done == step * 3
    assert not equation_trainer.components.loss.batches._pending
