"""Scripts of users under mypy: right ones pass in strict mode, and each wrong line of the others is an error."""

from __future__ import annotations

import inspect
import pydoc
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from launch_runs import ROOT

import rlm_plugins

api = pytest.importorskip("mypy.api")
SCRIPTS: dict[str, str] = yaml.safe_load((Path(__file__).parent / "data/user_scripts.yaml").read_text(encoding="utf-8"))


def test_scripts_of_users(tmp_path: Path) -> None:
    (project,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    skipped = ",".join([*project["module"], "torch.*", "pydantic.*"])
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\n[mypy-{skipped}]\nfollow_imports = skip\nignore_missing_imports = True\n"
    )
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [str(tmp_path / f"{name}.py") for name in SCRIPTS]
    output, problems, _ = api.run(
        ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "users"), *files]
    )
    assert not problems, problems
    found = {(Path(file).stem, int(line)) for file, line in re.findall(r"^(.+?\.py):(\d+): error", output, re.M)}
    lines = {name: text.splitlines() for name, text in SCRIPTS.items()}
    wrong = {(name, n) for name, text in lines.items() for n, line in enumerate(text, 1) if line.endswith("# error")}
    assert found == wrong, output


def test_the_exports_for_type_checkers_are_those_at_run_time() -> None:
    exported = re.findall(r"import (\w+) as \1$", inspect.getsource(rlm_plugins), re.M)
    assert sorted(exported) == sorted(rlm_plugins._LAZY)


def test_help_of_a_trainer_begins_with_a_page_of_its_own() -> None:
    """All arguments are described, and what is defined here takes a page; the rest is inherited."""
    text = pydoc.render_doc(rlm_plugins.GRPOTrainer, renderer=pydoc.plaintext)
    page = text.partition("Methods inherited from")[0]
    assert len(page.splitlines()) < 80
    parameters = inspect.signature(rlm_plugins.GRPOTrainer).parameters
    assert [name for name in parameters if f"{name}: " not in page.partition("Args:")[2]] == []
    assert "Any" not in str(inspect.signature(rlm_plugins.GRPOTrainer).parameters["model"])
