"""The cost of a start: what each entry point imports, the core alone, and checks of a data set before training."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from rlm_plugins import recipe, train
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

HEAVY = ("torch", "trl", "transformers", "datasets", "peft", "accelerate", "pandas", "scipy", "matplotlib")
LIGHT = """
import rlm_plugins.equation.batch, rlm_plugins.hookspecs, rlm_plugins.cli
import rlm_lab.explain, rlm_plugins.report.objective_text, rlm_lab.metrics, rlm_lab.scaffold, rlm_testing
from rlm_plugins import hookimpl, recipe
from rlm_plugins.builtin import advantages, callbacks, environments, models, rewards, trainers
from rlm_plugins.recipe import compose, document, resolve, trainer_settings
from rlm_plugins.registry import Registry
registry = Registry()
for part in registry: part.check(); part.file; part.hook == 'rlm_algorithms' or (part.knobs, part.data)
resolve.resolve(recipe.load('plugins/rlm-example/recipe.yaml', ['rewards=[accuracy]']), registry, 0)
"""
"""What an entry point may do without a heavy package: import, look at every part, read and resolve a recipe."""
LESSON = "recipes/lessons/01-addition.yaml"
COMMANDS = [
    (["--help"], ""),
    (["explain"], ""),
    (["explain", "plugins", "--json"], ""),
    (["explain", "clip"], ""),
    (["train", LESSON, "environment.digit=3"], "did you mean 'digits'"),
    (["check", LESSON, "environment.digit=3"], "did you mean 'digits'"),
    (["check", LESSON, "stages.1.algorithm.name=grop"], "did you mean 'grpo'"),
    (["check", LESSON, "stages.1.algorithm.advantage=gae"], "`gae` requires a critic"),
    (["check", LESSON, "rewards=[]"], "this algorithm requires rewards"),
]
"""Arguments of a command, and what it writes."""


def imported_by(code: str) -> set[str]:
    """Return the top-level modules of a fresh process after it runs `code`."""
    ask = f"{code}\nimport sys; print('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def call(arguments: list[str], written: str = "") -> str:
    """Return a program that calls a command and checks what it writes."""
    return textwrap.dedent(f"""
        import sys, io, contextlib
        sys.argv = ['rlm', *{arguments!r}]
        from rlm_plugins.cli import main
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit):
            main()
        assert len(shown.getvalue()) > 100 and {written!r} in shown.getvalue()
    """)


def test_entry_points_import_no_heavy_package() -> None:
    assert not imported_by(LIGHT) & set(HEAVY)


def test_commands_import_no_heavy_package() -> None:
    """Typing errors are among them."""
    assert not imported_by("".join(call(*command) for command in COMMANDS)) & set(HEAVY)


def test_package_imports_only_pluggy() -> None:
    bare, ours = imported_by("pass"), imported_by("from rlm_plugins import hookimpl")
    foreign = {name for name in ours - bare if name not in sys.stdlib_module_names}
    assert foreign == {"rlm_plugins", "pluggy"}


OF_TYPER = {"typer", "click", "rich", "shellingham", "markdown_it", "mdurl", "pygments", "annotated_doc"}
OF_TYPER |= {"attr"}  # rich imports it where it is installed
OF_PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
OF_SHAPES = {"jaxtyping", "numpy", "cython_runtime", "wadler_lindig"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [(["--help"], OF_TYPER), (["explain", "plugins"], OF_TYPER | OF_PYDANTIC | OF_SHAPES | {"yaml", "packaging"})],
)
def test_start_up_imports_few_packages(
    arguments: list[str], allowed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start-up time is held by what is imported: seconds depend on the machine."""
    monkeypatch.setenv("RLM_CACHE", str(tmp_path))  # no other process writes this index
    imported_by(call(arguments))  # the first command on a machine writes the index of all parts
    foreign = {
        name for name in imported_by(call(arguments)) - imported_by("pass") if name not in sys.stdlib_module_names
    }
    packages = {name for name in foreign if not name.startswith(("_", "rlm_"))}
    assert packages - allowed == {"pluggy"}


ROOT = Path(__file__).parents[1]
CUT = [
    "stages[0].model.hidden=32",
    "stages[0].trainer.max_steps=2",
    "stages[1].trainer.max_steps=2",
    "evaluation.rows=16",
]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command `rlm` of an environment with the core and all libraries, but no package of ours."""
    environment = tmp_path_factory.mktemp("kernel") / "environment"
    venv.create(environment, symlinks=True)
    (target,) = environment.glob("lib/python*/site-packages")
    for site in {Path(torch.__file__).parents[1], *(Path(each) for each in sys.path if each.endswith("site-packages"))}:
        for entry in site.iterdir():
            is_ours = "rlm_" in entry.name and not entry.name.startswith("rlm_plugins-")
            if not is_ours and entry.suffix != ".pth" and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)
    (target / "kernel.pth").write_text(f"{ROOT}\n")
    return [str(environment / "bin" / "python"), "-m", "rlm_plugins"]


def rlm(kernel: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RLM_CACHE": str(Path(kernel[0]).parents[1] / "cache")}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*kernel, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_no_package_is_found(kernel: list[str]) -> None:
    script = "import importlib.metadata as m; print([p.name for p in m.entry_points(group='rlm')])"
    found = subprocess.run([kernel[0], "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert importlib.metadata.entry_points(group="rlm"), "here there are packages"


def test_lesson_one_trains(kernel: list[str], tmp_path: Path) -> None:
    lesson = str(ROOT / "recipes/lessons/01-addition.yaml")
    shown = rlm(kernel, tmp_path, "train", lesson, *CUT, "--name", "alone")
    assert shown.returncode == 0, shown.stderr + shown.stdout
    lines = [json.loads(line) for line in (tmp_path / "runs/alone/metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"01-sft", "02-grpo"}
    assert (tmp_path / "runs/alone/02-grpo/adapter/adapter_model.safetensors").is_file()


def test_check_has_no_section_of_a_package(kernel: list[str], tmp_path: Path) -> None:
    shown = rlm(kernel, tmp_path, "check", str(ROOT / "recipes/lessons/01-addition.yaml"), *CUT, "--full")
    assert shown.returncode == 0, shown.stderr
    assert "transformers" in shown.stdout
    assert "\nspeed\n" not in shown.stdout


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


def composed(path: Path, **knobs: Any) -> Any:
    """Return the stage of the recipe with the data set at `path`."""
    environment = {**RECIPE["environment"], "path": str(path), **knobs}  # type: ignore[dict-item]
    (stage,) = compose(recipe.of_mapping({**RECIPE, "environment": environment}), Registry())
    return stage


def calls_of(path: Path, chat: bool) -> int:
    """Count the calls that composing makes."""
    number = 0

    def count_call(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        composed(path, chat=chat)
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("chat", [False, True])
def test_composing_makes_equally_many_calls_for_any_number_of_examples(tmp_path: Path, chat: bool) -> None:
    """They are counted in a process of its own: finalizers of other tests are calls too."""
    paths = [folder_of(tmp_path, count, {}, chat) for count in COUNTS]
    # the first composition of a data set stores its prompts
    script = f"from test_imports import calls_of, Path\nfor path in {[*map(str, paths)]}:\n"
    script += f"    print(min(calls_of(Path(path), {chat}) for _ in range(2)))"
    printed = subprocess.check_output([sys.executable, "-c", script], cwd=Path(__file__).parent, text=True)
    calls = [int(line) for line in printed.split()[-2:]]
    assert 0 < calls[1] < 1.05 * calls[0]


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
        composed(path, chat=chat, test_rows=0)


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
        train(data, out=tmp_path / "run")
