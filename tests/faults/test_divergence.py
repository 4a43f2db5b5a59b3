"""Trainings that diverge stop with their last good checkpoint, or are repeated at a lower learning rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rlm_plugins.equation.step import Divergence, check_number, check_weights, max_abs
from rlm_plugins.errors import RlmError
from rlm_plugins.run.launch import launch

PART = '''
import torch
from rlm_plugins import hookimpl
from rlm_plugins.trainer.observer import StepObserver

def at(step, value, x, first=3):
    return torch.full_like(x, value) if step == first else x

def spiky(rewards, step, *, value: float = 1e30, first: int = 3):
    """Advantage that explodes in one step."""
    return at(step, value, rewards, first)

def noisy(completion_ids):
    return [float(ids[0] % 5) for ids in completion_ids]

def loss_spike(logp, advantages, step, *, value: float = 1e30):
    """Policy loss that explodes in one step."""
    scale = value if step == 3 else 1.0
    return -logp * advantages * scale

class Poison(StepObserver):
    """Changes a weight before the optimizer steps, as a faulty kernel would."""

    def __init__(self, *, value: float = 1e30):
        self.value = value

    def attach(self, trainer):
        self.trainer = trainer

    def gradient(self, norm):
        if self.trainer.state.global_step == 3:
            with torch.no_grad():
                next(w for w in self.trainer.model.parameters() if w.requires_grad).view(-1)[0] = self.value

@hookimpl
def rlm_advantages():
    return {"spiky": spiky}

@hookimpl
def rlm_policy_losses():
    return {"loss_spike": loss_spike}

@hookimpl
def rlm_observers():
    return {"poison": Poison}

@hookimpl
def rlm_rewards():
    return {"noisy": noisy}
'''
RECIPE = """
plugins: {load: [part.py]}
environment: {name: addition, digits: 2, train_rows: 8, test_rows: 2}
rewards: [noisy]
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16, layers: 1}
algorithm: {name: grpo, penalties: []}
evaluation: null
trainer: {max_steps: 6, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4, save_steps: 1,
  learning_rate: 1.0e-3}
"""
SFT = ["algorithm={name: sft}", "rewards=[]", "trainer={max_steps: 6, per_device_train_batch_size: 4, save_steps: 1}"]
CRITIC = "algorithm={name: ppo}"


def run(folder: Path, name: str, *overrides: str) -> Any:
    (folder / "part.py").write_text(PART)
    (folder / "r.yaml").write_text(RECIPE)
    return launch(folder / "r.yaml", list(overrides), out=folder / name)


def spike(value: str) -> list[str]:
    return [f"algorithm.advantage={{name: spiky, value: {value}}}"]


def spoiled(value: str) -> list[str]:
    return [f"observers=[{{name: poison, value: {value}}}]"]


STOPS: dict[str, tuple[list[str], int]] = {
    "advantage 1e30": (spike("1e30"), 3),
    "advantage -1e30": (spike("-1e30"), 3),
    "advantage 1e12": (spike("1e12"), 3),
    "advantage at the first step": (["algorithm.advantage={name: spiky, first: 0}"], 0),
    "loss 1e30": (["algorithm.policy_loss={name: loss_spike}"], 3),
    "loss 1e38": (["algorithm.policy_loss={name: loss_spike, value: 1e38}"], 3),
    "a weight of 1e30": (spoiled("1e30"), 3),
    "a weight of -1e6": (spoiled("-1e6"), 3),
    "a weight of 1e6 in SFT": ([*SFT, *spoiled("1e6")], 3),
    "a weight of 1e30 with LoRA": (["model.lora={r: 4}", *spoiled("1e30")], 3),
    "learning rate 100": (["trainer.learning_rate=100.0"], -1),
    "learning rate 100, SFT": ([*SFT, "trainer.learning_rate=100.0"], -1),
    "learning rate 100, LoRA": (["model.lora={r: 4}", "trainer.learning_rate=100.0"], -1),
    "learning rate 100, no clipping": (["trainer.learning_rate=100.0", "trainer.max_grad_norm=0"], -1),
    "critic at 100": ([CRITIC, "critic={learning_rate: 100.0}"], -1),
    "shared critic at 100": ([CRITIC, "model.lora={r: 4}", "critic={learning_rate: 100.0}"], -1),
}
"""Overrides → the step that is kept (-1: any before the divergence)."""
QUICK = ("advantage 1e30", "a weight of 1e30", "learning rate 100, SFT")


def check_stops(folder: Path, name: str) -> None:
    overrides, kept = STOPS[name]
    title = name.replace(" ", "-").replace(",", "")
    with pytest.raises(Divergence, match="diverged") as caught:
        run(folder, title, *overrides)
    stage = next(path for path in (folder / title).iterdir() if path.name.startswith("01-"))
    steps = sorted(int(path.name.split("-")[1]) for path in stage.glob("checkpoint-*"))
    assert kept < 0 or steps == list(range(1, kept + 1)), steps
    for step in steps:
        for file in (stage / f"checkpoint-{step}").glob("*.safetensors"):
            assert all(x.isfinite().all() and x.abs().max() < 1e4 for x in load_file(file).values())
    assert caught.value.hint
    assert not (folder / title / "summary.json").exists()
    for record in (folder / title).glob("*/capsules/step-*/step.json"):
        assert json.loads(record.read_text())["fault"]["problem"] == caught.value.problem


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.faults(group="divergence")
def test_divergence_stops_the_run(tmp_path: Path, name: str, cases: Any) -> None:
    with cases(name):
        check_stops(tmp_path, name)


@pytest.mark.faults(group="divergence")
def test_every_divergence_stops_the_run(tmp_path: Path, cases: Any) -> None:
    for name in STOPS.keys() - {*QUICK}:
        with cases(name):
            check_stops(tmp_path, name)


@pytest.mark.faults(group="divergence")
def test_back_off_repeats_from_the_last_checkpoint(tmp_path: Path, cases: Any, capsys: Any) -> None:
    with cases("the rate is lowered until the run ends"):
        done = run(tmp_path, "ends", "trainer.learning_rate=100.0", "on_divergence=back_off", "trainer.max_steps=3")
        assert (done.folder / "summary.json").exists()
        assert "learning rates × 0.1" in capsys.readouterr().out
        rates = [r["learning_rate"] for r in done.records() if "learning_rate" in r]
        assert max(rates) <= 10.0
        steps = [r["step"] for r in done.records() if "grad_norm" in r]
        assert steps == sorted(set(steps)), "lines of the abandoned attempt are removed"
    with cases("a fault that no rate can cure stops"), pytest.raises(Divergence):
        run(tmp_path, "stops", *spike("1e30"), "on_divergence=back_off")


@pytest.mark.faults(group="divergence")
def test_numbers_that_stop(cases: Any) -> None:
    for value in (float("nan"), float("inf"), float("-inf"), 1e9, -1e30):
        with cases(f"{value}"), pytest.raises(Divergence, match="step 8: the loss is"):
            check_number(value, "the loss", 7)
    with cases("numbers of a training"):
        check_number(1e5, "the loss", 0)
    weights = [torch.ones(3), torch.tensor([2.0, -3.0])]
    with cases("weights of a training"):
        assert max_abs(weights) == 3.0
        check_weights(weights, 3.0, "the policy", 0)
    for bad in (float("nan"), float("inf"), 1e5):
        with cases(f"a weight of {bad}"), pytest.raises(Divergence, match="the largest weight of the policy"):
            check_weights([*weights, torch.tensor([0.0, bad])], 3.0, "the policy", 0)
    assert issubclass(Divergence, RlmError)
