"""Each package under `plugins/` alone: installed from its wheel beside the core, and by its own tests.

    python tests/run_plugin_packages.py [NAME …]    (make test-packages)

Core and test dependencies are installed into one fresh environment. Each package then gets an environment
on top of that one, with its own dependencies only. Its quick tests run in a folder without sources, so a file
missing from a wheel, or an unlisted dependency, fails here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
QUIET = ("-qq", "--disable-pip-version-check")


def environment(folder: Path, below: Path | None = None) -> Path:
    """Create an environment; what is installed in the one `below` can be imported from it too."""
    venv.create(folder, with_pip=True, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    if below is not None:
        (site / "below.pth").write_text(f"{next(below.glob('lib/python*/site-packages'))}\n")
    return folder


def python(folder: Path, *arguments: str, where: Path = ROOT) -> int:
    """Run the interpreter of an environment, without the packages of this one, and return the exit status."""
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    settings["CI"] = "true"  # Hypothesis: no deadline, the same examples each time
    return subprocess.run([folder / "bin" / "python", *arguments], cwd=where, env=settings, check=False).returncode


def install(folder: Path, *wanted: str) -> int:
    """Install packages and return the exit status of pip."""
    return python(folder, "-m", "pip", "install", *QUIET, "-c", str(ROOT / "constraints.txt"), *wanted)


def own(name: str, wheels: Path) -> list[str]:
    """Return the wheels of a package with its extras, and of the packages of this repository that it requires.

    Wheels are named by file, because an index may have other packages of these names.
    """
    project = tomllib.loads((ROOT / "plugins" / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: wanted for name, wanted in project.get("optional-dependencies", {}).items() if name != "test"}
    required = {re.split(r"[^\w-]", wanted)[0] for wanted in sum(extras.values(), project["dependencies"])}
    chosen = f"[{','.join(extras)}]" if extras else ""
    return [f"{wheel(name, wheels)}{chosen}", *(str(wheel(each, wheels)) for each in sorted(required & {*NAMES}))]


def wheel(name: str, wheels: Path) -> Path:
    """Return the wheel of a package of this repository."""
    (found,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    return found


def tested(name: str, base: Path, wheels: Path, folder: Path) -> str:
    """Install one package, run its tests, and return the result in words."""
    home = environment(folder / "venv", base)
    if install(home, *own(name, wheels)):
        return "cannot be installed"
    left = shutil.ignore_patterns("src", "__pycache__")
    tests = shutil.copytree(ROOT / "plugins" / name, folder / name, ignore=left)
    options = ("-q", "-rs", "-p", "no:cacheprovider", "-o", "pythonpath=tests", "--import-mode=importlib")
    code = python(home, "-m", "pytest", "-m", "not full", *options, "tests", where=tests)
    return "passed" if code == 0 else f"failed: pytest returned {code}"


def main(names: Sequence[str]) -> int:
    """Test the packages, and return 0 if all of them passed."""
    with tempfile.TemporaryDirectory() as place:
        base, wheels = environment(Path(place) / "core"), Path(place) / "wheels"
        sources = [str(ROOT), *(str(ROOT / "plugins" / name) for name in NAMES)]
        if install(base, "torch"):  # first, so that no other build of it is requested
            return 1
        if python(base, "-m", "pip", "wheel", *QUIET, "--no-deps", "-w", str(wheels), *sources):
            return 1
        if install(base, f"{wheel('rlm-plugins', wheels)}[test]", str(wheel("rlm-testing", wheels))):
            return 1
        results = {}
        for name in names:
            start = time.monotonic()
            print(f"== {name}", flush=True)
            outcome = tested(name, base, wheels, Path(place) / f"alone-{name}")
            results[name] = f"{outcome}, {time.monotonic() - start:.0f} s"
    print(*(f"{name}: {outcome}" for name, outcome in results.items()), sep="\n")
    return int(not all(outcome.startswith("passed") for outcome in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or NAMES))
