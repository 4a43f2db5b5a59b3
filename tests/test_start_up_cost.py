"""Checks of a data set before training: their cost does not grow with it, and an invalid example is named anyway."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest

import rlm_plugins as rlm
from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

RECIPE = {
    "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16, "layers": 1, "max_positions": 64},
    "environment": {"name": "dataset", "chat": False, "test_rows": 8},
    "rewards": ["accuracy"],
    "algorithm": "grpo",
    "trainer": {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 8},
}
COUNTS = 512, 16_384


def folder_of(path: Path, count: int, changes: Mapping[int, Any], chat: bool) -> Path:
    """Save a data set whose prompts are those of `changes` at their numbers."""
    prompts: list[Any] = [changes.get(number, f"{number}+1=?") for number in range(count)]
    if chat:
        prompts = [text if isinstance(text, list) else [{"role": "user", "content": text}] for text in prompts]
    rows = datasets.Dataset.from_dict({"prompt": prompts, "answer": [str(number + 1) for number in range(count)]})
    rows.save_to_disk(str(path / str(count)))
    return path / str(count)


def composed(path: Path, *, chat: bool = False) -> Any:
    """Return the stage of the recipe with the data set at `path`."""
    environment = {**RECIPE["environment"], "path": str(path), "chat": chat}  # type: ignore[dict-item]
    (stage,) = compose(recipe.of_mapping({**RECIPE, "environment": environment}), Registry())
    return stage


@pytest.mark.parametrize("chat", [False, True])
def test_composing_makes_equally_many_calls_for_any_number_of_examples(tmp_path: Path, chat: bool) -> None:
    calls = []
    for count in COUNTS:
        path = folder_of(tmp_path, count, {}, chat)
        composed(path, chat=chat)  # `datasets` stores the prompts once
        number = 0

        def count_call(frame: Any, event: str, argument: Any) -> None:
            nonlocal number
            number += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            composed(path, chat=chat)
        finally:
            sys.setprofile(None)
        calls.append(number)
    assert calls[1] < 1.05 * calls[0]


DEEP = 9_001
DEFECTS: dict[str, tuple[Any, str]] = {
    "a character without a token": ("1√1=?", f"example {DEEP}: the tokenizer has no token for '√'"),
    "a long prompt": ("1" * 70, f"prompt of training example {DEEP} has 70 tokens, and the model has 64 positions"),
    "a form that the template refuses": (
        [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "tool", "content": "√"}],
        f"example {DEEP}: ",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_far_inside_is_found_before_training(name: str, tmp_path: Path) -> None:
    prompt, words = DEFECTS[name]
    chat = isinstance(prompt, list)
    path = folder_of(tmp_path, COUNTS[1], {DEEP: prompt}, chat)
    with pytest.raises(RecipeError, match=words):
        composed_without_held_out(path, chat)


def composed_without_held_out(path: Path, chat: bool) -> Any:
    environment = {**RECIPE["environment"], "path": str(path), "chat": chat, "test_rows": 0}  # type: ignore[dict-item]
    return compose(recipe.of_mapping({**RECIPE, "environment": environment}), Registry())


def test_a_run_names_the_example(tmp_path: Path) -> None:
    plugin = tmp_path / "many.py"
    plugin.write_text(
        "from rlm_plugins import hookimpl\n"
        "from rlm_plugins.data.text_columns import spread\n"
        "from rlm_plugins.specs import EnvironmentSpec\n\n"
        "def many() -> EnvironmentSpec:\n"
        '    """Examples of which only those in the sample are valid."""\n'
        "    valid = {*spread(2_000)}\n"
        '    rows = [{"prompt": "1+1=" if n in valid else 7, "answer": "2"} for n in range(2_000)]\n'
        "    return EnvironmentSpec(train=rows)\n\n"
        "@hookimpl\ndef rlm_environments():\n    return {'many': many}\n"
    )
    data = {**RECIPE, "environment": "many", "plugins": {"load": [str(plugin)]}}
    with pytest.raises(
        RecipeError, match=r"environment \(stage '01-grpo'\): training example 1 of 'many/many': expected"
    ):
        rlm.train(data, out=tmp_path / "run")
