"""Imports of each entry point, in a fresh process: listing and checking must not load what training requires."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

HEAVY = ("torch", "trl", "transformers", "datasets", "peft", "accelerate", "pandas", "scipy", "matplotlib")
LIGHT = {
    "the package": "import rlm_plugins",
    "the hook marker": "from rlm_plugins import hookimpl",
    "the vocabulary": "import rlm_plugins.equation.batch",
    "the seams": "import rlm_plugins.hookspecs",
    "the registry, built": "from rlm_plugins.registry import Registry; assert list(Registry())",
    "every part, looked at": (
        "from rlm_plugins.registry import Registry\n"
        "for part in Registry(): part.check(); part.file; part.hook == 'rlm_algorithms' or (part.knobs, part.data)"
    ),
    "the recipe": "from rlm_plugins.recipe import compose, document, resolve, trainer_settings",
    "a recipe, read": (
        "from rlm_plugins import recipe\nfrom rlm_plugins.registry import Registry\n"
        "from rlm_plugins.recipe.resolve import resolve\n"
        "resolve(recipe.load('plugins/rlm-example/recipe.yaml', ['rewards=[accuracy]']), Registry(), 0)"
    ),
    "the explanations": "import rlm_lab.explain, rlm_plugins.report.objective_text, rlm_lab.metrics",
    "the scaffold": "import rlm_lab.scaffold",
    "the conformance kit, as a pytest plugin": "import rlm_testing",
    "the command line": "import rlm_plugins.cli",
}


def imported_by(code: str) -> set[str]:
    """Return the top-level modules of a fresh process after it runs `code`."""
    ask = f"{code}\nimport sys; print('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("what", LIGHT)
def test_module_imports_no_heavy_package(what: str) -> None:
    assert not imported_by(LIGHT[what]) & set(HEAVY)


def test_package_imports_only_pluggy() -> None:
    bare, ours = imported_by("pass"), imported_by("from rlm_plugins import hookimpl")
    foreign = {name for name in ours - bare if name not in sys.stdlib_module_names}
    assert foreign == {"rlm_plugins", "pluggy"}


@pytest.mark.parametrize("arguments", [["--help"], ["explain"], ["explain", "plugins", "--json"], ["explain", "clip"]])
def test_command_does_not_import_torch(arguments: list[str]) -> None:
    code = (
        "import sys, io, contextlib\n"
        f"sys.argv = ['rlm', *{arguments!r}]\n"
        "from rlm_plugins.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit): main()\n"
        "assert len(shown.getvalue()) > 100"
    )
    assert not imported_by(code) & set(HEAVY)


@pytest.mark.parametrize("command", ["check", "train"])
def test_typo_is_reported_without_torch(command: str) -> None:
    arguments = ["rlm", command, "recipes/lessons/01-addition.yaml", "environment.digit=3"]
    code = (
        "import sys, io, contextlib\n"
        f"sys.argv = {arguments!r}\n"
        "from rlm_plugins.cli import main\n"
        "with contextlib.redirect_stderr(io.StringIO()) as shown, contextlib.suppress(SystemExit): main()\n"
        "assert \"did you mean 'digits'\" in shown.getvalue()"
    )
    assert not imported_by(code) & set(HEAVY)


OF_TYPER = {"typer", "click", "rich", "shellingham", "markdown_it", "mdurl", "pygments", "annotated_doc"}
OF_TYPER |= {"attr"}  # rich imports it where it is installed
OF_PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
OF_SHAPES = {"jaxtyping", "numpy", "cython_runtime", "wadler_lindig"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [(["--help"], OF_TYPER), (["explain", "plugins"], OF_TYPER | OF_PYDANTIC | OF_SHAPES | {"yaml", "packaging"})],
)
def test_start_up_imports_few_packages(arguments: list[str], allowed: set[str]) -> None:
    """Start-up time is held by what is imported: seconds depend on the machine."""
    code = (
        "import sys, io, contextlib\n"
        f"sys.argv = ['rlm', *{arguments!r}]\n"
        "from rlm_plugins.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()"
    )
    imported_by(code)  # the first command on a machine imports every package, and writes the index of their parts
    foreign = {name for name in imported_by(code) - imported_by("pass") if name not in sys.stdlib_module_names}
    packages = {name for name in foreign if not name.startswith(("_", "rlm_"))}
    assert packages - allowed == {"pluggy"}


@pytest.mark.parametrize("name", ["environments", "rewards", "models", "trainers", "callbacks", "advantages"])
def test_a_file_of_built_in_parts(name: str) -> None:
    assert importlib.util.find_spec(f"rlm_plugins.builtin.{name}")
    assert not imported_by(f"import rlm_plugins.builtin.{name}") & set(HEAVY)
