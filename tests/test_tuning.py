"""Kernels of the CPU: the fastest candidate by measurement, threads by size, and freed memory that is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlm_fast import linear_layers, tuning
from rlm_fast.features import speed_of
from rlm_fast.linear_layers import MIN_THREADED, fast_linear, threads_for
from rlm_fast.tuning import CHOICES, Choice, applied

from rlm_plugins.recipe import load
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run import train as runs
from rlm_plugins.run.recipe_argument import read

RECIPE = """
model: {name: scratch, hidden: 16, layers: 1}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: [accuracy]
algorithm: grpo
trainer: {max_steps: 1, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4}
"""


@pytest.mark.parametrize(
    ("seconds", "best"), [({8: 0.5, 9: 0.6}, 8), ({8: 1.1, 9: 2.0}, 7), ({8: 1.0 - tuning.GAIN / 2, 9: 1.0}, 7)]
)
def test_the_fastest_candidate_is_chosen_if_it_is_clearly_faster(
    seconds: dict[int, float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels: Any = SimpleNamespace(LEVEL=7, now=0.0)

    def work() -> None:
        kernels.now += {7: 1.0, **seconds}[kernels.LEVEL]

    clock = SimpleNamespace(perf_counter=lambda: kernels.now, thread_time=lambda: kernels.now)
    monkeypatch.setattr(tuning, "time", clock)
    choice = Choice(kernels, "LEVEL", tuple(seconds), lambda: work, "level:")
    assert tuning._fastest(choice) == best
    assert kernels.LEVEL == 7, "measuring leaves the value as it is"


@pytest.mark.parametrize("key", sorted(CHOICES))
def test_no_candidate_changes_more_than_rounding(key: str) -> None:
    choice = CHOICES[key]
    assert choice.value not in choice.candidates, "the default is compared in any case"
    expected = choice.workload()()
    for value in choice.candidates:
        with applied({key: value}):
            actual = choice.workload()()
        torch.testing.assert_close(list(actual), list(expected), rtol=1e-4, atol=1e-4)


def test_every_choice_is_a_constant_of_its_module() -> None:
    assert {"onednn_tokens", "head_logits", "merged_products", "argmax_piece"} <= CHOICES.keys()
    for key, choice in CHOICES.items():
        before = getattr(choice.module, choice.name)
        with applied({key: before + 1, "unknown": 3}):
            assert getattr(choice.module, choice.name) == before + 1
        assert getattr(choice.module, choice.name) == before


def test_a_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    results = iter([{"onednn_tokens": 16}, {"onednn_tokens": 32}, {"onednn_tokens": 8}])
    monkeypatch.setattr(tuning, "measure", lambda: next(results))
    assert tuning.tuned() == tuning.tuned() == {"onednn_tokens": 16}
    monkeypatch.setattr(tuning, "processor", lambda: "another processor")
    assert tuning.tuned() == {"onednn_tokens": 32}
    (tmp_path / "cache" / tuning.FILE).write_text("{damaged")
    assert tuning.tuned() == {"onednn_tokens": 8}


def test_a_resumed_run_uses_the_values_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([{"onednn_tokens": 16}, {"onednn_tokens": 8}])
    monkeypatch.setattr(tuning, "tuned", lambda: next(values))
    monkeypatch.setenv(tuning.OFF, "on")
    used = []
    stage = runs._train_stage

    def watched(*given: Any) -> Any:
        used.append(linear_layers.MIN_TOKENS)
        return stage(*given)

    monkeypatch.setattr(runs, "_train_stage", watched)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    recipe = load(tmp_path / "recipe.yaml")
    for resume in (False, True):
        runs.train(recipe, Registry(), tmp_path / "run", resume=resume)
        (tmp_path / "run/01-grpo/done").unlink(missing_ok=True)
    assert used == [16, 16]
    stages = json.loads((tmp_path / "run/manifest.json").read_text())["stages"]
    assert [entries["tuning"] for entries in stages.values()] == [{"onednn_tokens": 16}]
    assert linear_layers.MIN_TOKENS not in used, "a run leaves the values of the process as they were"


@pytest.mark.parametrize("override", ["speed=none", "speed={tune_kernels: false}"])
def test_measuring_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str) -> None:
    monkeypatch.setenv(tuning.OFF, "on")
    monkeypatch.setattr(tuning, "tuned", lambda: {"onednn_tokens": 16})
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    for overrides, expected in (((), {"onednn_tokens": 16}), ((override,), {})):
        recipe, registry = read(tmp_path / "recipe.yaml", overrides)
        stages = compose(recipe, registry)
        values = tuning.values(speed_of(stages[0]))
        assert values == ({} if torch.accelerator.is_available() else expected)
        line = tuning.line(speed_of(stages[0]))
        assert ("defaults, not measured" in line) is not bool(values)
        assert "tokens from which oneDNN is used: " + ("16" if values else "64") in line


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize(("products", "expected"), [(0, 1), (MIN_THREADED - 1, 1), (MIN_THREADED, 2)])
def test_number_of_threads(two_threads: None, products: int, expected: int) -> None:
    with threads_for(products):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_threads_are_restored_after_an_error(two_threads: None) -> None:
    with pytest.raises(KeyError), threads_for(0):
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("tokens", [1, 16, 100, 400])
@pytest.mark.parametrize("size", [16, 64, 512])
def test_products_of_any_size(two_threads: None, tokens: int, size: int) -> None:
    x, weight = torch.randn(tokens, 256), torch.randn(size, 256)
    assert torch.allclose(fast_linear(x, weight), x @ weight.T, atol=1e-4)
    assert torch.get_num_threads() == 2


FAULTS = """
import resource, torch
from rlm_fast.linear_layers import keep_freed_memory
assert keep_freed_memory()

def fill(size):
    tensors = [torch.ones(size) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = fill(2**22)
print(fill(2**22 - 2**12) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's `mallopt`")
@pytest.mark.parametrize(
    ("variables", "least", "most"), [({}, 0, 2000), ({"MALLOC_MMAP_THRESHOLD_": "65536"}, 8000, 10**6)]
)
def test_a_freed_tensor_is_used_again(variables: dict[str, str], least: int, most: int) -> None:
    """A setting in the environment takes precedence: with it four tensors of 16 MiB have 16,000 new pages."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | variables
    run = subprocess.run([sys.executable, "-c", FAULTS], env=outside, capture_output=True, text=True, check=True)
    assert least <= int(run.stdout) <= most
