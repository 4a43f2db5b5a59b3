"""A package outside the core adds a command, a setting, a section, an observer and forward passes, without an edit."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlm_fast.speed import Memory
from rlm_lab import scaffold
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.cli import app
from rlm_plugins.cli.output import plugin_commands
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.stage import RunState
from rlm_plugins.trainer.config import GRPOConfig
from rlm_plugins.trainer.options import arguments

PAGE = Path(__file__).parents[1] / "docs" / "writing-parts.md"
PACKAGE = """
import time
from typing import Annotated

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import Setting
from rlm_plugins.trainer.observer import StepObserver


class Stopwatch(StepObserver):
    def __init__(self, limit):
        self.limit = limit

    def attach(self, trainer):
        self.log = trainer.components.context.log

    def begin_generation(self):
        self.start = time.perf_counter()

    def scored(self, batch, turn_ends):
        self.log("stopwatch/over", float(time.perf_counter() - self.start > self.limit))


def no_engine(config):
    if config.use_vllm:
        raise RecipeError("requires decoding in this process", where="trainer.max_seconds")


@hookimpl
def rlm_settings():
    return {
        "max_seconds": Setting(
            Annotated[float, Field(gt=0)],
            "Seconds that a generation batch may take.",
            check=no_engine,
            observer=lambda config: Stopwatch(config.max_seconds),
            memory_bytes=lambda policy, config: 12345,
            metrics={"stopwatch/over": "1 if the batch took longer"},
        )
    }

"""
RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: [accuracy]
algorithm: grpo
speed: none
counted_passes: {per: 1000}
observers: [{name: longest_completion, tokens: 2}]
trainer: {max_steps: 1, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4, max_seconds: 1e-9}
"""


def page_block() -> str:
    """Return the forward passes that docs/writing-parts.md shows."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (block,) = [text for text in blocks if "class CountingPasses" in text]
    return block


def install(folder: Path) -> Path:
    """Write a package with its metadata, as pip installs it; return the folder for `sys.path`."""
    examples = [scaffold.module_text(hook, scaffold.part_name(hook)) for hook in ("rlm_observers", "rlm_commands")]
    (folder / "scratch_package.py").write_text("\n".join([PACKAGE, page_block(), *examples]))
    metadata = folder / "scratch_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: scratch-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rlm]\nscratch_package = scratch_package\n")
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a recipe; the package is installed."""
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(install(tmp_path))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    plugin_commands.cache_clear()  # another test of this process may have listed the commands
    yield tmp_path
    plugin_commands.cache_clear()
    sys.modules.pop("scratch_package", None)


def load(folder: Path, *overrides: str) -> Any:
    return recipe.load(folder / "recipe.yaml", overrides)


def build(folder: Path, *overrides: str) -> Any:
    """Return the trainer of the recipe."""
    loaded = load(folder, *overrides)
    (stage,) = compose(loaded, Registry(loaded.load, loaded.block))
    return stage.trainer.build(stage, RunState())


def test_setting_section_observer_and_passes_are_used(installed: Path) -> None:
    run = train(load(installed), Registry(), installed / "run")
    (line,) = [line for line in run.records() if "longest" in line]
    assert line["stopwatch/over"] == 1.0, "the setting"
    assert line["longest"] == 2.0, "the observer, in units of two tokens"
    prompt = 7  # of a token each, the two at its ends included
    assert line["passes/tokens"] == 4 * (prompt + 4), "the forward passes: four sequences"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("trainer.max_seconds=-1", r"trainer\.max_seconds.*more than 0"),
        ("counted_passes.perr=1", "perr"),
        ("observers=[{name: longest_completion, token: 2}]", "token"),
        ("speed={}", "both replace the forward passes"),
    ],
)
def test_mistakes_are_refused(installed: Path, override: str, problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build(installed, override)
    assert re.search(problem, f"{caught.value.where} {caught.value.problem}"), caught.value


def test_setting_checks_the_config(installed: Path) -> None:
    settings = {"output_dir": str(installed / "run"), "use_cpu": True, "bf16": False, "max_seconds": 1.0}
    assert GRPOConfig(**settings).max_seconds == 1.0
    with pytest.raises(RecipeError, match="requires decoding in this process"):
        GRPOConfig(**settings, use_vllm=True)


def test_its_memory_is_in_the_estimate(installed: Path) -> None:
    (stage,) = compose(load(installed), Registry())
    always = Memory().check_data(stage, arguments(stage))["always"]
    assert always["`max_seconds`"] == 12345


def test_command_of_the_package(installed: Path) -> None:
    (installed / "samples.jsonl").write_text('{"completion": "abc"}\n{"completion": "a"}\n')
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert re.search(r"mean_length\s+Print the mean length of the completions of a run", shown)
    assert CliRunner().invoke(app, ["mean_length", str(installed)]).stdout == "2.0\n"


def test_package_that_is_blocked_adds_nothing(installed: Path) -> None:
    document = json.dumps({"block": ["scratch_package"]})
    with pytest.raises(RecipeError, match=r"max_seconds|counted_passes|longest_completion"):
        build(installed, f"plugins={document}")
