"""`rlm explain skill`: the recipes that it shows pass `rlm check`, and every key and command in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rlm_lab.recipe_keys import recipe_keys
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.cli.output import plugin_commands


@pytest.fixture(scope="module")
def skill() -> str:
    result = CliRunner().invoke(app, ["explain", "skill"])
    assert result.exit_code == 0, result.output
    return result.stdout


def blocks(kind: str, page: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.S | re.M)


@pytest.mark.parametrize("number", range(3))
def test_its_recipes_pass_check(number: int, skill: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    rows = [f'{{"prompt": "1{n}+20=?", "answer": "3{n}"}}' for n in range(10)]
    Path("questions.jsonl").write_text("\n".join(rows))
    for text in blocks("python", skill):
        Path(text.split()[1]).write_text(text)
    recipe = blocks("yaml", skill)[number]
    Path("recipe.yaml").write_text(recipe)
    local = ["model={name: scratch, lora: {r: 4, target_modules: all-linear}}"] if "HuggingFaceTB" in recipe else []
    result = CliRunner().invoke(app, ["check", "recipe.yaml", *local])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith("ok")


def test_its_names_exist(skill: str) -> None:
    assert set(re.findall(r"`rlm ([a-z]+)", skill)) <= {"check", "train", "eval", *plugin_commands()}
    assert all(f"- `{key}`: " in skill for key in recipe_keys() if "." not in key)
    for name in ("accuracy", "grpo", "dataset", "group_relative"):
        assert name in skill
