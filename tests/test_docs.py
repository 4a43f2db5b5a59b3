"""What README, CONTRIBUTING and the lessons say is true of this commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from by_hand import row_of, taught
from test_rows_by_advantage import example
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.cli import algorithms as table
from rlm_plugins.cli import app
from rlm_plugins.cli.objective_text import objective, slots_of
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted([*(ROOT / "plugins").glob("*/README.md"), *(ROOT / "recipes").rglob("README.md")])
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(kind: str, page: str = README) -> list[str]:
    """The fenced blocks of one kind."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page, flags=re.S | re.M)
    return [text for found, text in fenced if found == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_the_table_of_readme_is_the_table() -> None:
    """The same rows in the same order."""
    told = re.findall(r"^\| `([a-z0-9_@]+)` \|", README, flags=re.M)
    assert told == [entry["name"] for entry in table.table(Registry()) if "@" not in entry["name"]]


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


# ---- CONTRIBUTING: a variant in fifteen lines


@pytest.fixture
def variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page, each named on its first line."""
    for text in (*blocks("python", CONTRIBUTING), *blocks("yaml", CONTRIBUTING)):
        if name := re.match(r"# (\w+\.\w+)\n", text):
            (tmp_path / name[1]).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_variant_takes_fifteen_lines(variant: Path) -> None:
    """Beside imports and decorators."""
    lines = (variant / "variant.py").read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith(("#", "from ", "@"))]) == 15


def test_the_variant_is_the_row_of_the_table(variant: Path) -> None:
    """From rewards to loss and gradient, on batches where the weight is capped."""
    registry = Registry([variant / "variant.py"])
    slots = slots_of(registry.find("rlm_algorithms", "capped").target, registry)
    found = row_of("cispo", **{slot: slots[slot] for slot in ("advantage", "importance", "policy_loss", "aggregator")})
    batch = replace(example(), old_logp=example().old_logp - 2.0)
    assert ((batch.logp - batch.old_logp).exp() > 5).any()
    torch.testing.assert_close(taught(batch, found), taught(batch, row_of("cispo")))


@pytest.mark.slow
def test_the_test_of_the_variant_passes(variant: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_variant.py"]
    outside = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{variant}", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=variant, env=outside, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "passed" in run.stdout


def test_the_recipe_of_the_variant_is_one(variant: Path) -> None:
    found = recipe.load(variant / "recipe.yaml", ["model={name: scratch, lora: {r: 16}}"])
    stage = compose(found, Registry([variant / "variant.py"]))[0]
    assert stage.equation is not None
    assert objective(vars(stage.equation)) == "loss = Σ [ −sg(min(w, 1+4)) · Â · log π ] / Σ n"
    for command in (["diff", "grpo", "capped"], ["explain", "capped"]):
        told = CliRunner().invoke(app, [*command, "--load", "variant.py"], env={"COLUMNS": "120"})
        assert told.exit_code == 0, told.output
        assert "capped_weight(epsilon_high=4.0)" in told.stdout


@pytest.mark.parametrize("command", sorted(set(re.findall(r"(?:^|`)rlm ([a-z]+)", README + CONTRIBUTING, re.M))))
def test_every_command_of_the_pages_exists(command: str) -> None:
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
