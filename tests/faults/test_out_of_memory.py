"""Out of memory and errors of other libraries: the last step is saved, and micro-batches can be halved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import yaml
from fault_cases import recipe, resume, weights

from rlm_plugins.errors import RlmError
from rlm_plugins.run.launch import launch
from rlm_plugins.run.trainer_callbacks import MetricsLog
from rlm_plugins.trainer.checkpoint import checkpoints
from rlm_plugins.trainer.equation_trainer import EquationTrainer

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="memory")]
ERRORS: dict[str, Callable[[], Exception]] = {
    "torch.OutOfMemoryError": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "CPU allocator": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    "MemoryError": MemoryError,
    "a lost connection": lambda: ConnectionError("no route to the tracker"),
}
PLACES = {
    "backward": (accelerate.Accelerator, "backward"),
    "generation": (EquationTrainer, "_generate"),
    "log": (MetricsLog, "on_log"),
}
NO_SAVES = {"max_steps": 4, "save_steps": 100}
HALF = ["trainer.per_device_train_batch_size=4", "trainer.gradient_accumulation_steps=2"]


def failing(monkeypatch: pytest.MonkeyPatch, place: str, error: Exception, call: int) -> None:
    """Raise an error in a call of training, once."""
    owner, name = PLACES[place]
    original, calls = getattr(owner, name), 0

    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += getattr(self, "model", torch.nn.Identity()).training  # not in an evaluation
        if calls == call:
            calls += 1
            raise error
        return original(self, *args, **options)

    monkeypatch.setattr(owner, name, wrapped)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    return weights(launch(recipe(folder, **NO_SAVES), [], out=folder / "run").folder)


@pytest.mark.parametrize(
    "place", ["backward", *(pytest.param(name, marks=pytest.mark.full) for name in ("generation", "log"))]
)
def test_the_last_step_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, whole: dict[str, bytes], cases: Any
) -> None:
    for number, (name, create) in enumerate(ERRORS.items()):
        if place == "log" and name != "a lost connection":
            continue
        out, error = tmp_path / str(number), create()
        with cases(f"{name} in {place}"), monkeypatch.context() as patch:
            failing(patch, place, error, 3)
            with pytest.raises(type(error) if name == "a lost connection" else RlmError) as raised:
                launch(recipe(tmp_path, **NO_SAVES), [], out=out)
            patch.undo()
            saved = [path.name for path in checkpoints(out / "01-grpo")]
            assert saved == [f"checkpoint-{3 if place == 'log' else 2}"]
            if name != "a lost connection":
                told = str(raised.value)
                assert ("in generation" if place == "generation" else "in the update") in told
                assert "rlm check estimates about" in told
                assert "trainer.max_completion_length=2  (about" in told
                assert ("per_device_train_batch_size=4" in told) is (place == "backward")
            assert weights(resume(out)) == whole


def test_halved_micro_batches_are_those_of_a_run_that_began_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recipe(tmp_path, **NO_SAVES)
    document = yaml.safe_load(file.read_text()) | {"speed": "none"}  # which would merge them again
    file.write_text(yaml.safe_dump(document))
    halving = tmp_path / "halving.yaml"
    halving.write_text(yaml.safe_dump(document | {"memory": {"on_oom": "halve"}}))
    with cases("in the first step"):
        failing(monkeypatch, "backward", MemoryError(), 1)
        halved = launch(halving, [], out=tmp_path / "first").folder
        assert weights(halved) == weights(launch(file, HALF, out=tmp_path / "began").folder)
        assert capsys.readouterr().out.count("repeated with per_device_train_batch_size 4, gradient_acc") == 1
    with cases("in the third step"):
        failing(monkeypatch, "backward", MemoryError(), 3)
        halved = launch(halving, [], out=tmp_path / "third").folder
        failing(monkeypatch, "backward", MemoryError(), 3)
        with pytest.raises(RlmError, match="out of memory"):
            launch(file, [], out=tmp_path / "stopped")
        changed = ["trainer.per_device_train_batch_size", "trainer.gradient_accumulation_steps"]
        resumed = launch(tmp_path / "stopped", HALF, resume=True, allow_changed=changed).folder
        assert weights(halved) == weights(resumed)
        assert weights(halved) != weights(tmp_path / "first")
