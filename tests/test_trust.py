"""Trust: code that a recipe runs is listed before it runs, confirmed once, and limited to the recipe's own code."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_trust_attempts import fresh  # noqa: F401
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.document import load
from rlm_plugins.recipe.foreign_code import foreign_code
from rlm_plugins.registry import Registry, loading
from rlm_plugins.registry.loading import GROUP, Limits, import_object
from rlm_plugins.run import recipe_argument

RECIPE = """
model: {name: scratch}
environment: {name: addition, train_rows: 8, test_rows: 4}
rewards: [accuracy]
algorithm: grpo
trainer: {num_generations: 2, per_device_train_batch_size: 2, gradient_accumulation_steps: 1, max_completion_length: 4}
"""
PLUGIN = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from rlm_plugins import hookimpl

def shortness(completions):
    "Return the length, negated."
    return [-float(len(text)) for text in completions]

@hookimpl
def rlm_rewards():
    return {"shortness": shortness}
"""
RUNNER = CliRunner()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Return a recipe that loads a plugin file, which leaves a trace when it runs."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    path = tmp_path / "recipe.yaml"
    path.write_text(f"plugins: {{load: [mine.py]}}{RECIPE}")
    return path


def run(*arguments: object) -> Any:
    recipe_argument._grants_all = False  # each command is a process of its own
    return RUNNER.invoke(app, list(map(str, arguments)))


def test_python_m_runs_nothing_of_the_working_directory(tmp_path: Path) -> None:
    """A folder with a recipe may hold modules, and metadata of a package with plugins."""
    trace = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for module in ("typer", "pluggy", "pathlib"):
        (tmp_path / f"{module}.py").write_text(trace)
    (tmp_path / "evil.py").write_text(trace)
    metadata = tmp_path / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nevil = evil\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "rlm_plugins", "check", "recipe.yaml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "ran").exists()


def test_trust_is_kept_until_the_code_changes(recipe: Path) -> None:
    assert run("check", recipe, "--trust").exit_code == 0
    assert recipe.with_name("ran").exists()
    assert run("check", recipe).exit_code == 0
    recipe_argument._granted.clear()
    assert run("check", recipe).exit_code == 0, "the file remembers"
    recipe.with_name("mine.py").write_text(PLUGIN + "\n# changed")
    assert run("check", recipe).exit_code == 2
    recipe_argument._granted.clear()
    recipe_argument.trust_file().write_text("{damaged")
    assert run("check", recipe).exit_code == 2


def test_environment_variable_trusts_for_one_run(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_TRUST", "1")
    assert run("check", recipe).exit_code == 0
    monkeypatch.delenv("RLM_TRUST")
    assert run("check", recipe).exit_code == 2


def test_recipes_without_foreign_code_need_no_confirmation(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    result = run("check", tmp_path / "recipe.yaml", "--full")
    assert result.exit_code == 0, result.output
    assert "foreign code\n  none" in result.output
    assert not recipe_argument.trust_file().exists()


@pytest.mark.parametrize(
    ("function", "packages", "problem"),
    [
        ("os:system", "", "'os' is no package that the recipe names"),
        ("os:system", "os", "expected the name of an installed package, got 'os'"),
        ("trl.import_utils:importlib.import_module", "trl", "belongs to 'importlib"),
        ("../evil.py:f", "", "is no file in the folder of the recipe"),
        ("link.py:f", "", "is no file in the folder of the recipe"),
    ],
)
def test_addresses_resolve_only_in_the_folder_and_in_named_packages(
    function: str, packages: str, problem: str, tmp_path: Path
) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(**columns): pass\n")
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "link.py").symlink_to(evil)
    function = function.replace("ABSOLUTE", str(tmp_path))
    text = RECIPE.replace("[accuracy]", f"[{{name: trl, function: '{function}', options: {{command: 'touch ran'}}}}]")
    path = tmp_path / "recipe" / "recipe.yaml"
    path.write_text(f"plugins: {{packages: [{packages}]}}{text}")
    result = run("check", path, "--trust")
    assert result.exit_code == 2
    assert problem in result.output.replace("\n", " ")
    assert not (tmp_path / "ran").exists()


def test_a_changed_file_is_not_executed(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("f = len")
    loading.limit(Limits({}, frozenset(), {f"{file}:f": hashlib.sha256(b"f = max").hexdigest()}))
    with pytest.raises(RecipeError, match="has changed"):
        import_object(f"{file}:f", where="it")


def test_a_changed_plugin_file_is_not_executed(recipe: Path) -> None:
    """A file that changes before the question is answered has another digest."""
    changed = recipe.with_name("mine.py")
    loading.limit(Limits({changed: hashlib.sha256(b"").hexdigest()}, frozenset()))
    with pytest.raises(RecipeError, match="has changed"):
        Registry([changed])
    assert not recipe.with_name("ran").exists()


def remote(path: Path, model: str) -> str:
    path.write_text(RECIPE.replace("model: {name: scratch}", f"model: {model}"))
    (code,) = foreign_code(load(path))
    return code.identity


def test_unnamed_models_with_code_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    models = [f"{{name: other, config: {{trust_remote_code: true, id: {name}}}}}" for name in ("a/b", "c/d")]
    assert len({remote(path, model) for model in models}) == 2
    nested = "{name: pretrained, path: a/b, revision: v1, config: {trust_remote_code: true}}"
    assert remote(path, nested) == "model a/b revision v1"


def test_the_map_of_a_local_model_is_part_of_its_code(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modeling.py").write_text("")
    (folder / "config.json").write_text("{}")
    model = f"{{name: pretrained, path: {folder}, trust_remote_code: true}}"
    before = remote(tmp_path / "recipe.yaml", model)
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "evil/repo--modeling.Model"}}')
    assert remote(tmp_path / "recipe.yaml", model) != before


def test_a_part_named_by_its_file_requires_trust(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def power(rewards, *, exponent: float = 1.0):\n    return rewards**exponent\n")
    path = tmp_path / "recipe.yaml"
    algorithm = "algorithm: {name: grpo, advantage: {name: './mine.py:power', exponent: 2}}"
    path.write_text(RECIPE.replace("algorithm: grpo", algorithm))
    assert "power" in path.read_text()
    refused = run("check", path)
    assert refused.exit_code == 2
    assert "mine.py" in refused.output
    assert run("check", path, "--trust").exit_code == 0
    (tmp_path / "mine.py").write_text("def power(rewards): return 2 * rewards")
    assert run("check", path).exit_code == 2, "the file has changed"


def test_addresses_are_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scores.py").write_text("def f(completions, **others): return [1.0] * len(completions)\n")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("[accuracy]", "[{name: trl, function: './scores.py:f'}]"))
    monkeypatch.chdir("/")
    assert load(path).bodies[0]["rewards"][0]["function"] == f"{tmp_path}/scores.py:f"
    assert run("check", path, "--trust").exit_code == 0
