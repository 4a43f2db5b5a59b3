"""What README, CONTRIBUTING and the lessons say is true of this commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.cli import app
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted([*(ROOT / "plugins").glob("*/README.md"), *(ROOT / "recipes").glob("*/README.md")])
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of README of one kind."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.S | re.M)
    return [text for found, text in fenced if found == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_the_table_of_readme_is_the_table() -> None:
    told = set(re.findall(r"^\| `([a-z0-9_@]+)` \|", README, flags=re.M))
    rows = {p.name for p in Registry() if p.hook == "rlm_algorithms" and p.target.trainer == "grpo"}
    assert told == {name for name in rows if "@" not in name}


def test_the_recipe_of_readme_is_one(tmp_path: Path) -> None:
    text = next(block for block in blocks("yaml") if "GRPO teaches" in block)
    (tmp_path / "recipe.yaml").write_text(text)
    found = recipe.load(tmp_path / "recipe.yaml", ["model={name: scratch, lora: {r: 16}}"])
    stage = compose(found, Registry())[0]
    assert stage.equation is not None
    assert stage.equation.policy_loss.knobs["epsilon"] == 0.3
    assert stage.settings["learning_rate"] == 1e-6


def test_the_variant_of_readme_is_lesson_two(tmp_path: Path) -> None:
    def code(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith(("#", '"""Lesson'))]

    (told,) = blocks("python")
    assert sorted(code(told)) == sorted(code((ROOT / "recipes/lessons/median.py").read_text()))
    (tmp_path / "median.py").write_text(told)
    found = Registry([tmp_path / "median.py"]).find("rlm_advantages", "median_baseline")
    assert found.needs == ("rewards", "group")


def test_the_error_of_readme_is_what_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(block for block in blocks("yaml") if "GRPO teaches" in block)
    wrong = text.replace("  - accuracy\n", "  - {name: accuracy, wieght: 2}\n").partition("\n")[2]
    (tmp_path / "recipe.yaml").write_text(wrong)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "recipe.yaml", "model=scratch"], env={"COLUMNS": "200"})
    told = next(block for block in blocks("") if "wieght" in block)
    assert result.exit_code == 2
    assert result.stderr.strip() == told.strip()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\brlm ([a-z]+)", README))))
def test_every_command_of_readme_exists(command: str) -> None:
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
