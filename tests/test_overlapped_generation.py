"""`generation_device`: a second process generates during the update, to the bits of the simulation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import tiny
import torch
from fixtures_trainer import OFTEN, clipped, interrupted, logged, trainer, weights
from rlm_engines import overlapped_generation
from rlm_engines.checks import check_overlap, check_plain_sampling
from rlm_fast.workload import Forecast
from rlm_lab import race
from test_stale_policy import stale_policy
from transformers import TrainerCallback

from rlm_plugins.builtin.trainers import GRPO
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.check_report import batch_plan
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.options import arguments

TIMES = ("time", "per_second", "stale/wait")
"""Metrics that depend on the clock."""
AHEAD = {"generation_device": "cpu"}
FAST = {"pieces": {"generator": Registry().find("rlm_generators", "fast/fast").bind({})}}
CASES = {
    "two updates per batch": {"stale": 3, "num_iterations": 2, "max_steps": 6},
    "all weights": {"stale": 2, "pieces": {"peft_config": None}},
    "several epochs, two micro-batches": {"gradient_accumulation_steps": 2, "num_generations": 2, "max_steps": 11,
        **FAST},
}  # fmt: skip
RECIPE = """
environment: {name: addition, digits: 2, test_rows: 4}
rewards: [accuracy]
evaluation: {metric: accuracy, max_new_tokens: 4}
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16, lora: {r: 2, target_modules: all-linear}}
algorithm: {name: dapo, filters: []}
trainer:
  {stale: 2, generation_device: cpu, max_steps: 8, per_device_train_batch_size: 8, num_generations: 4,
   max_completion_length: 8, save_strategy: steps, save_steps: 1, use_cpu: true}
"""


def trained(
    folder: Path, equation: Any = clipped, **settings: Any
) -> tuple[EquationTrainer, list[list[int]], list[dict[str, float]]]:
    """Return a trainer after its run, its completions, and its metrics without times."""
    made = trainer(folder, equation(), **{"stale": 1, "max_steps": 3, **settings})
    seen: list[list[int]] = []
    generate = made._generate

    def recorded(prompts: list[Any]) -> Any:
        generated = generate(prompts)
        seen.extend(generated[1])
        return generated

    made._generate = recorded
    made.train()
    logs = [{k: x for k, x in line.items() if not any(word in k for word in TIMES)} for line in made.state.log_history]
    return made, seen, logs


def check_equal(folder: Path, **settings: Any) -> None:
    """Check that completions, weights and metrics of the simulation and of the second process are the same bits."""
    simulated, overlapped = trained(folder / "a", **settings), trained(folder / "b", **settings, **AHEAD)
    assert len({*map(tuple, simulated[1])}) > 4, "completions differ from each other"
    assert overlapped[1] == simulated[1]
    assert all(torch.equal(x, weights(overlapped[0])[name]) for name, x in weights(simulated[0]).items())
    assert overlapped[2] == simulated[2]
    waits = logged(overlapped[0], "stale/wait")
    assert len(waits) >= 3
    assert waits[-1] < waits[0], "the first batch waits for the start of the process"


def test_run_equals_the_simulation(tmp_path: Path) -> None:
    check_equal(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_other_runs_equal_the_simulation(tmp_path: Path, name: str) -> None:
    check_equal(tmp_path, **CASES[name])


def test_resumed_run_equals_the_simulation(tmp_path: Path) -> None:
    """Batches in flight at a checkpoint are generated again, from the weights that it holds."""
    settings = {"stale": 2, "max_steps": 5, **OFTEN}
    whole, _ = interrupted(tmp_path, (1, 2, 4), lambda folder: trainer(folder, **settings, **AHEAD))
    simulated = trainer(tmp_path / "simulated", **settings)
    simulated.train()
    assert all(torch.equal(x, weights(whole)[name]) for name, x in weights(simulated).items())


class At(TrainerCallback):
    """Calls a function with the trainer after an optimizer step."""

    def __init__(self, made: EquationTrainer, step: int, action: Any) -> None:
        self.made, self.step, self.action = made, step, action
        made.add_callback(self)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.action(self.made)


def send(number: int) -> Any:
    return lambda made: os.kill(stale_policy(made).process.pid, number)


def is_alive(pid: int) -> bool:
    """Return True if a process runs; a zombie counts as ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSTOP, "within 3 s, got none")]
)
def test_process_that_ends_or_hangs_stops_the_run(
    tmp_path: Path, number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path, stale=1, max_steps=5, **AHEAD, **OFTEN)
    pids: list[int] = []

    def stop(made: EquationTrainer) -> None:
        pids.append(stale_policy(made).process.pid)
        monkeypatch.setattr(overlapped_generation, "TIMEOUT", 3)
        send(number)(made)

    At(made, 2, stop)
    with pytest.raises(RlmError, match=words) as caught:
        made.train()
    assert caught.value.where == "trainer.generation_device"
    assert "generation_device" in caught.value.hint
    assert not is_alive(pids[0])
    assert made.is_safe_point(), "the last step can be saved"
    assert (tmp_path / f"checkpoint-{made.state.global_step}").is_dir()


def test_errors_of_the_process_reach_the_user(tmp_path: Path) -> None:
    """Of a generator that it cannot find, and of weights that are not finite."""
    part = Part("rlm_generators", "mine", "mine", lambda generate: generate())
    made = trainer(tmp_path / "a", stale=1, pieces={"generator": part.bind({})}, **AHEAD)
    with pytest.raises(RlmError, match="mine"):
        made.train()
    made = trainer(tmp_path / "b", stale=1, **AHEAD)

    def spoil(made: EquationTrainer) -> None:
        next(p for p in made.model.parameters() if p.requires_grad).data.fill_(float("nan"))

    At(made, 1, spoil)
    with pytest.raises(RlmError, match="diverged"):
        made.train()


def test_class_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    made = trainer(tmp_path, stale=1, max_steps=1, **AHEAD)
    made.model.get_base_model().config.unknown = lambda: None
    with pytest.raises(RlmError, match="cannot be copied into a second process"):
        made.train()


REFUSED = {
    "a device of this machine": ["trainer.generation_device=cuda:9"],
    "requires an earlier policy": ["trainer.stale=0"],
    "refills the batch": ["algorithm.filters=[{name: nonzero_std, refill: 3}]"],
    "called before every generation": ["algorithm.sampler=prioritized"],
    "rollout source 'greedy'": ["algorithm.rollouts=[{name: greedy, num_completions: 1}]"],
    "whole optimizer steps": ["trainer.gradient_accumulation_steps=2", "trainer.steps_per_generation=1"],
    "cast_lm_head_to_fp32": ["trainer.cast_lm_head_to_fp32=true"],
}
"""Words of the error → overrides."""


def staged(folder: Path, *overrides: str) -> Any:
    (folder / "recipe.yaml").write_text(RECIPE)
    return compose(*read(folder / "recipe.yaml", overrides))[0]


@pytest.mark.parametrize("words", REFUSED)
def test_check_refuses_what_cannot_be_generated_ahead(tmp_path: Path, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        staged(tmp_path, *REFUSED[words])
    assert "trainer.generation_device" in str(caught.value)
    assert "hint:" in str(caught.value) or "allowed:" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "data", "source"),
    [
        ("episode of several turns", {"train": [], "environment": object}, {}),
        ("a stream", {"train": iter(())}, {}),
        ("takes images", {"train": []}, {"processor": print}),
        ("quantized", {"train": []}, {"config": SimpleNamespace(quantization_config={"bits": 4})}),
    ],
)
def test_check_refuses_data_that_are_not_known_ahead(words: str, data: Any, source: Any) -> None:
    config = GRPO().config_class()(**tiny.settings(stale=1, generation_device="cpu"))
    source = SimpleNamespace(**{"processor": None, "config": SimpleNamespace(quantization_config=None), **source})
    with pytest.raises(RecipeError, match=words) as caught:
        check_overlap(Stage("01-x", {}, None, {}, EnvironmentSpec(**data), source), config, "trainer.generation_device")
    assert caught.value.where == "trainer.generation_device"


def test_python_arguments_that_generate_are_refused() -> None:
    for name in ("rollout_func", "tools", "environment_factory"):
        with pytest.raises(RecipeError, match=name):
            check_plain_sampling({name: [print]})


def test_race_refuses_a_second_process(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    with pytest.raises(RlmError, match="generation_device"):
        race._racer(tmp_path / "recipe.yaml", [])
    assert race._racer(tmp_path / "recipe.yaml", ["trainer.generation_device=null"])


def test_check_names_the_device_and_counts_the_copy(tmp_path: Path) -> None:
    found = {}
    for device in ("cpu", "null"):
        stage = staged(tmp_path, f"trainer.generation_device={device}")
        args = arguments(stage)
        found[device] = Forecast(stage, args).memory
        text = "\n".join(batch_plan(args, 100, stage.settings).lines())
        assert ("in a second process on cpu" in text) == (device == "cpu")
        assert "policy of 2 optimizer steps before" in text
    one, two = found["null"], found["cpu"]
    copy = two.always["`generation_device`"]
    assert one.always["`generation_device`"] == 0
    assert two.peak - one.peak == copy
    weights = one.always["frozen weights"] + one.always["trained weights"]
    assert copy == weights + one.always["process"] + sum(one.generation.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_leaves_no_process_and_a_run_that_resumes(tmp_path: Path, number: int) -> None:
    """The weights at the end are those of a run without a signal, also if it goes on in one process."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)

    def command(name: str, *more: str) -> list[str]:
        run = [sys.executable, "-m", "rlm_plugins", "train"]
        return [*run, *more] if more else [*run, str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / name)]

    stopped = tmp_path / "stopped"
    started = subprocess.Popen(command("stopped"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not list(stopped.glob("*/checkpoint-1")):
        assert time.monotonic() < end
        assert started.poll() is None
        time.sleep(0.02)
    workers = [child.pid for child in psutil.Process(started.pid).children()]
    assert workers
    started.send_signal(number)
    code = started.wait(timeout=60)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    while any(map(is_alive, workers)):
        assert time.monotonic() < end
        time.sleep(0.1)
    here = ["trainer.generation_device=null", "--allow-changed", "trainer.generation_device"]
    more = here if number == signal.SIGTERM else []
    subprocess.run(command("", str(stopped), "--resume", *more), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command("whole"), check=True, stdout=subprocess.DEVNULL)
    ends = [next((tmp_path / name).glob("*/adapter/adapter_model.safetensors")) for name in ("stopped", "whole")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
