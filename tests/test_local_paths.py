"""Paths in a recipe are relative to it, from any working directory; those of the command line to the latter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import load
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.recipe.part_lookup import absolute_settings
from rlm_plugins.registry import Registry

RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 32}
environment: {name: dataset, path: PATH}
rewards: [accuracy]
algorithm: {name: grpo, rollouts: [{name: replay, num_completions: 1, path: ./earlier.jsonl}]}
trainer: {max_steps: 1, num_generations: 2, per_device_train_batch_size: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a recipe with its data; the working directory has other data of the same name."""
    for name in ("recipes", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.jsonl").write_text(f'{{"prompt": "{len(name)}+1=", "answer": "1"}}\n' * 4)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "recipes"


def stages(folder: Path, path: str, *overrides: str, build: bool = False) -> Any:
    (folder / "r.yaml").write_text(RECIPE.replace("PATH", path))
    recipe = load(folder / "r.yaml", overrides)
    return recipe, compose(recipe, Registry(), build_environment=build)


@pytest.mark.parametrize("path", ["./data.jsonl", "data.jsonl", "../recipes/data.jsonl"])
def test_relative_to_the_recipe(folder: Path, path: str) -> None:
    recipe, (stage,) = stages(folder, path)
    body = stage.body
    assert body["environment"]["path"] == str(folder / "data.jsonl")
    assert body["algorithm"]["rollouts"][0]["path"] == str(folder / "earlier.jsonl")
    assert absolute_settings({"deepspeed": "./zero.json", "optim": "adamw"}, lambda name: folder) == {
        "deepspeed": str(folder / "zero.json"),
        "optim": "adamw",
    }
    assert resolved([stage], recipe)["environment"]["path"] == str(folder / "data.jsonl"), "a run folder loads anywhere"


def test_on_the_command_line_relative_to_the_working_directory(folder: Path) -> None:
    _, (stage,) = stages(folder, "./data.jsonl", "environment.path=./data.jsonl")
    assert stage.body["environment"]["path"] == str(folder.parent / "elsewhere" / "data.jsonl")


def test_a_hub_name_stays(folder: Path) -> None:
    _, (stage,) = stages(folder, "openai/gsm8k")
    assert stage.body["environment"]["path"] == "openai/gsm8k"


def test_error_of_a_missing_file_names_the_searched_folder(folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"there is no file or folder '.*/recipes/dota.jsonl'(?s:.*)data.jsonl"):
        stages(folder, "./dota.jsonl", "algorithm=grpo", build=True)


def test_a_pipe_is_no_data_file_and_no_recipe(folder: Path) -> None:
    """Reading one that nobody writes would wait for ever."""
    os.mkfifo(folder / "pipe.yaml")
    with pytest.raises(RecipeError, match="got the pipe, socket or device"):
        stages(folder, "./pipe.yaml", build=True)
    with pytest.raises(RecipeError, match="expected a file, got a folder, pipe or device"):
        load(folder / "pipe.yaml")
