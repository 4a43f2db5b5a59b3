"""Scripts of users under mypy: right ones pass in strict mode, and each wrong line of the others is an error."""

from __future__ import annotations

import inspect
import pydoc
import re
import tomllib
from pathlib import Path

import pytest
from launch_runs import ROOT

import rlm_plugins

api = pytest.importorskip("mypy.api")
SCRIPTS = {
    "trl_user": """
from trl import GRPOConfig, SFTConfig

from rlm_plugins import GRPOTrainer, RewardTrainer, SFTTrainer


def digits(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    return [float(right in text) for text, right in zip(completions, answer)]


class Mine(GRPOTrainer):
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)


trainer = Mine("model", digits, GRPOConfig("out"), [{"prompt": "1+1="}], algorithm={"name": "dapo"}, speed="none")
trainer.train()
GRPOTrainer(modle="x")  # error
GRPOTrainer("x", nonsense=3)  # error
GRPOTrainer("x", algorithm=3)  # error
GRPOTrainer("x", critic="all")  # error


def text(row: dict[str, object]) -> str:
    return str(row)


SFTTrainer("x", SFTConfig("out"), algorithm="dft", formatting_func=text, callbacks=[]).train()
RewardTrainer("x", compute_metrics=lambda prediction: {"accuracy": 1.0})
SFTTrainer("x", algorithm="grpo")  # error
SFTTrainer("x", formatting_func=3)  # error
RewardTrainer("x", trian_dataset=None)  # error
RewardTrainer("x", compute_metrics=text(3))  # error
""",
    "notebook": """
from pathlib import Path

import rlm_plugins as rlm


def score(completions: list[str]) -> list[float]:
    return [float(len(text)) for text in completions]


recipe = {"model": "scratch", "environment": "addition", "algorithm": "grpo"}
run = rlm.train(recipe, {"trainer.seed": 1}, out=Path("runs"), rewards=[score, "accuracy"], algorithm="grpo")
folder: Path = run.folder
number: float = rlm.evaluate(run, rows=8)["score"]
print(rlm.check("recipe.yaml"), rlm.load(recipe).bodies, rlm.explain("grpo").entries)
rlm.trian(recipe)  # error
rlm.train(recipe, out=3)  # error
rlm.train(recipe, reward=[score])  # error
rlm.check(3)  # error
wrong: int = run.folder  # error
""",
    "package": """
from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.errors import RlmError


def shortest(completions: list[str]) -> list[float]:
    if not completions:
        raise RlmError("expected completions", where="shortest", hint="generate some")
    return [-float(len(text)) for text in completions]


@hookimpl
def rlm_rewards() -> dict[str, Any]:
    return {"shortest": shortest}


RlmError("problem", were="here")  # error
""",
}


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
