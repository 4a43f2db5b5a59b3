"""The pages match the code: blocks run, commands exist, and links, paths and cross-references resolve."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tiny
from rlm_lab import algorithms as table
from rlm_testing.fake_packages import registered
from typer.testing import CliRunner

from rlm_plugins import recipe
from rlm_plugins.cli import app
from rlm_plugins.equation import step
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.recipe import sections, yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolve import plans_of
from rlm_plugins.recipe.stage_sections import generates
from rlm_plugins.registry import Registry, protocols
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import objective
from rlm_plugins.rewards.columns import as_messages
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Reward
from rlm_plugins.trainer import EquationTrainer

ROOT = Path(__file__).parents[1]
TRAINER = ROOT / "rlm_plugins" / "trainer"
README = (ROOT / "README.md").read_text()
WRITING_PARTS = (ROOT / "docs" / "writing-parts.md").read_text()
PAGES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "plugins/README.md")]
PAGES += sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "plugins").glob("*/README.md")])
PAGES += sorted([*(ROOT / "recipes").rglob("README.md"), *(ROOT / "benchmarks" / "results").glob("*.md")])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(kind: str, page: str = README) -> list[str]:
    """Return the fenced blocks of one kind."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page, flags=re.S | re.M)
    return [text for language, text in fenced if language == kind]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


# ---- every page


def documented_rewards() -> list[Any]:
    """Return name and source of every reward function of a page or a notebook; `test_hookspecs` has the hooks'."""
    found = {}
    for page in [*PAGES, *(ROOT / "docs" / "notebooks").glob("*.py")]:
        text = page.read_text()
        for source in [text] if page.suffix == ".py" else blocks("python", text):
            with suppress(SyntaxError):  # a call in a notebook's language
                functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
                for node in functions:
                    if {argument.arg for argument in node.args.args} & {"completion", "completions"}:
                        found[ast.unparse(node)] = f"{page.name}:{node.name}"
    return [pytest.param(title.partition(":")[2], code, id=title) for code, title in found.items()]


@pytest.mark.parametrize(("name", "source"), documented_rewards())
def test_documented_reward_scores_text_and_messages_alike(name: str, source: str) -> None:
    """In a recipe it gets text, also of a chat; in a trainer with TRL's constructor it gets messages."""
    scope: dict[str, Any] = {}
    exec(source, scope)
    part = Part("rlm_rewards", name, "page", scope[name])
    texts, user = ["42", "no", "It is 42", "<answer>42</answer>"], [{"role": "user", "content": "40+2=?"}]
    data = {"completion_ids": [[1]] * 4, "answer": ["42"] * 4}
    plain = trl_reward(Reward(name, part.bind({})))(prompts=["40+2=?"] * 4, completions=texts, **data)
    assert len({*plain}) > 1, "a constant would be equal whatever it reads"
    chat = {"prompts": [user] * 4, "completions": as_messages(texts), **data}
    assert trl_reward(Reward(name, part.bind({})))(**chat) == plain
    if part.takes_kwargs:
        assert trl_reward(Reward(name, part.bind({}), messages=True))(**chat) == plain


def test_documented_rewards_are_found() -> None:
    pages = {parameter.id.partition(":")[0] for parameter in documented_rewards()}
    assert pages >= {"python.md", "examples.md", "from_trl.py"}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_resolve(page: Path) -> None:
    dangling = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if "://" in target:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dangling.append(target)
    assert dangling == []


PATH = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:py|md|yaml|json|jsonl|png|toml)|(?:[\w.-]+/)+)`")
"""A file or folder in backticks; one without a slash, or below ``./``, is an example of the user's."""
OF_A_RUN = ("runs/", "critic/", "build/", "dist/", "./")
"""Folders that are made by a command."""


@each_page
def test_paths_in_backticks_exist(page: Path) -> None:
    roots = (page.parent, ROOT, ROOT / "rlm_plugins")
    paths = [path for path in PATH.findall(prose(page)) if not path.startswith(OF_A_RUN)]
    assert [path for path in paths if not any(list(root.glob(path)) for root in roots)] == []


@each_page
def test_recipe_fragments_have_known_keys(page: Path) -> None:
    known = {*sections.Document.model_fields, *Registry().section_names()}
    for text in blocks("yaml", page.read_text()):
        document = yaml_strict.parse(text, str(page)).data
        if isinstance(document, dict):
            assert set(document) <= known, text


PACKAGES = sorted(path.parent.name.removeprefix("rlm-") for path in (ROOT / "plugins").glob("rlm-*/src"))
INSTALLED = [name for name in PACKAGES if importlib.util.find_spec(f"rlm_{name}")]
installed = registered(*INSTALLED)
EXAMPLE = [] if "example" in INSTALLED else [ROOT / "plugins/rlm-example/src/rlm_example/__init__.py"]
"""`make` does not install this package."""
REST: dict[str, Any] = {
    "model": {"name": "scratch", "lora": {"r": 8, "target_modules": "all-linear"}},
    "environment": "addition",
    "rewards": ["accuracy"],
    "algorithm": "grpo",
}
"""The sections that a fragment of a recipe may lack."""
WITH_RECIPES = [page for page in PAGES if "```yaml" in page.read_text() and page.name != "writing-parts.md"]
"""The recipe of `docs/writing-parts.md` has a test of its own."""


@pytest.mark.parametrize("page", WITH_RECIPES, ids=lambda page: str(page.relative_to(ROOT)))
def test_recipe_fragments_resolve(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    """Every part, knob and section exists; `…` marks what a fragment leaves out.

    The files that fragments name are here: a model folder, and `scores.py`, if the page has no block of that name.
    """
    package = page.parent.name.removeprefix("rlm-")
    if package in PACKAGES and package not in (*INSTALLED, "example"):
        pytest.skip(f"rlm-{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXAMPLE_KEY", "x")
    (tmp_path / "my-model").mkdir()
    scores = [text for text in blocks("python", page.read_text()) if text.startswith("# scores.py")]
    (tmp_path / "scores.py").write_text("\n".join(scores) or "def compute_score(solution_str): return 0.0")
    registry = Registry(EXAMPLE)
    for text in blocks("yaml", page.read_text()):
        document = yaml_strict.parse(text, str(page)).data
        if "…" in text:
            continue
        algorithm = document.get("algorithm", "grpo")
        name = algorithm if isinstance(algorithm, str) else algorithm["name"]
        trainer = registry.find("rlm_trainers", registry.find("rlm_algorithms", name).target.trainer)
        rest = REST if generates(trainer.bind({})) else {**REST, "rewards": []}
        model = document.get("model", {})
        merged = {**rest, **document}
        if isinstance(model, dict):
            merged["model"] = {**(REST["model"] if "name" not in model else {}), **model}
        assert plans_of(recipe.of_mapping(merged), registry), text


COMMANDS = {
    command
    for page in PAGES
    if page.name != "CHANGELOG.md"
    for command in re.findall(r"(?:^|`)rlm ((?:reward )?[a-z-]*[a-z])", page.read_text(), re.M)
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_of_the_pages_exists(command: str) -> None:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


@each_page
def test_every_module_of_the_pages_exists(page: Path) -> None:
    modules = re.findall(r"python -m (rlm_[\w.]+)", page.read_text())
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


# ---- the page on Python


@pytest.mark.slow
def test_the_page_on_python_runs(tmp_path: Path) -> None:
    """Its code blocks run in order on a tiny model; every column that they name is in the data."""
    settings = tiny.settings(output_dir=str(tmp_path), max_steps=1)
    known: dict[str, Any] = {"settings": settings, "tokenizer": tiny.tokenizer(), "lora": tiny.lora()}
    known |= {"dataset": tiny.problems(), "folder": tmp_path / "critic"}
    for block in blocks("python", (ROOT / "docs" / "python.md").read_text()):
        known["model"] = tiny.model()
        exec(block, known)
    assert (tmp_path / "critic").is_dir()


def test_the_measurements_of_the_traps_hold() -> None:
    known: dict[str, Any] = {}
    measurements = blocks("python", (ROOT / "docs" / "traps.md").read_text())
    for block in measurements:
        exec(block, known)
    assert sum("assert" in block for block in measurements) == 5


# ---- README


def test_readme_is_short() -> None:
    assert README.count("\n") <= 150


def test_the_table_of_algorithms_lists_all_of_them() -> None:
    """It has the built-in algorithms of `rlm explain algorithms` in order."""
    page = (ROOT / "docs" / "algorithms.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_@]+)` \|", page, flags=re.M)
    assert rows == [
        entry["name"]
        for entry in table.table(Registry())
        if "@" not in entry["name"] and entry["full_name"].startswith("builtin/")
    ]


def readme_recipe() -> str:
    return next(block for block in blocks("yaml") if "GRPO trains" in block)


def test_readme_variant_is_a_part(tmp_path: Path) -> None:
    _, block = blocks("python")
    (tmp_path / "median.py").write_text(block)
    address = f"{tmp_path}/median.py:median_baseline"
    part = Registry().find("rlm_advantages", address)
    assert part.required_data == ("rewards", "group")
    assert part.full_name == address, "the recipe of the run finds it again"


def test_the_error_of_readme_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = readme_recipe().replace("[accuracy,", "[{name: accuracy, wieght: 2},")
    (tmp_path / "recipe.yaml").write_text(wrong)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "recipe.yaml", "model=scratch"], env={"COLUMNS": "200"})
    shown = next(block for block in blocks("") if "wieght" in block)
    assert result.exit_code == 2
    assert result.stderr.strip() == shown.strip()


# ---- docs/architecture.md: the course of a step


def test_the_step_of_the_architecture_is_the_step() -> None:
    """Every method in its table belongs to the trainer, a collaborator or `step.py`, and every hook exists."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = re.findall(r"^\|(?! TRL calls|---)(.*)\|$", page.partition("| TRL calls |")[2].partition("\n\n")[0], re.M)
    modules = [importlib.import_module(f"rlm_plugins.trainer.{file.stem}") for file in TRAINER.glob("[a-z]*.py")]
    owners: dict[str, Any] = {"step": step} | {name: x for module in modules for name, x in vars(module).items()}
    for line in lines:
        overrides, calls, _, hooks = (re.findall(r"`([\w.]+)`", cell) for cell in line.split("|"))
        assert all(hasattr(EquationTrainer, name) for name in overrides), line
        assert all(hasattr(owners[owner], method) for owner, method in (call.split(".") for call in calls)), line
        assert set(hooks) <= set(HOOKS), line
    assert len(lines) > 15


# ---- docs/writing-parts.md: a multi-turn environment, and an algorithm in fifteen lines


def test_documented_environment_runs() -> None:
    (block,) = (text for text in blocks("python", WRITING_PARTS) if "Halving" in text)
    namespace: dict[str, Any] = {}
    exec(block, namespace)
    spec = namespace["halving"]()
    episode = spec.environment()
    episode.reset(secret=spec.train[0]["secret"])
    assert episode.step("9") == ("-", 0.0, False)
    assert episode.step("2") == ("+", 1.0, True) or episode.step("2")[1:] == (1.0, True)


def test_every_optional_member_has_its_line() -> None:
    section = WRITING_PARTS.partition("## Optional members")[2].partition("\n## ")[0]
    cells = "".join(re.findall(r"^\|(.*?)\|", section, re.M))
    assert set(re.findall(r"`(\w+)`", cells)) == set(protocols.MEMBERS)


@pytest.fixture
def variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of the page, each named on its first line."""
    for text in (*blocks("python", WRITING_PARTS), *blocks("yaml", WRITING_PARTS)):
        if name := re.match(r"# (\w+\.\w+)\n", text):
            (tmp_path / name[1]).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_variant_takes_fifteen_lines(variant: Path) -> None:
    """Imports and decorators are not counted."""
    lines = (variant / "variant.py").read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith(("#", "from ", "@"))]) == 15


@pytest.mark.slow
def test_the_test_of_the_variant_passes(variant: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_variant.py"]
    outside = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{variant}", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=variant, env=outside, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "passed" in run.stdout


def test_the_recipe_of_the_variant_composes(variant: Path) -> None:
    loaded = recipe.load(variant / "recipe.yaml", ["model={name: scratch, lora: {r: 16}}"])
    stage = compose(loaded, Registry([variant / "variant.py"]))[0]
    assert stage.equation is not None
    assert objective(vars(stage.equation)) == "loss = Σ [ −sg(min(w, 1+4)) · Â · log π ] / Σ n"
    for command in (["explain", "grpo", "capped"], ["explain", "capped"]):
        result = CliRunner().invoke(app, [*command, "--load", "variant.py"], env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        assert "capped_weight(epsilon_high=4.0)" in result.stdout
