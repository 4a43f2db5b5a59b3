"""Rehearse a release: wheels that install alone, metadata, pages, and a run without the checkout.

    make release-check [NAMES=1]

With NAMES=1 each name is looked up on PyPI once. Nothing is uploaded. Third-party packages come from the index that pip
is set to, with the versions of constraints.txt.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
LEFT_OUT = ("rlm-example", "rlm-gym")
"""Not part of `rlm-plugins[all]`: an example; a package that requires a C compiler."""
PIP = ("-m", "pip", "--disable-pip-version-check")
REQUIRED = ("Name", "Version", "Summary", "Requires-Python", "License-Expression", "Description-Content-Type")
EXTRAS = {"all", "vllm", "ray", "quantized", "gguf", "plot"}
RECIPE = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 8}
rewards: [accuracy]
model: {name: scratch, layers: 1, hidden: 32, heads: 2, lora: {r: 4, target_modules: all-linear}}
algorithm: grpo
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 8}
"""


def run(*command: str, where: Path = ROOT, quiet: bool = False) -> str:
    """Run a command without the packages of this interpreter, and return its output.

    Raises:
        SystemExit: It failed; the text is its output.
    """
    settings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    settings |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(where)}
    done = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, check=False)
    if done.returncode and not quiet:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def built(folder: Path) -> list[Path]:
    """Build every wheel in one environment, and return them."""
    python = environment(folder.parent / "build", "hatchling>=1.26")
    run(str(python), *PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), *map(str, SOURCES))
    wheels = sorted(folder.glob("*.whl"))
    assert len(wheels) == len(SOURCES), f"expected {len(SOURCES)} wheels, got {[x.name for x in wheels]}"
    return wheels


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def check_metadata(wheels: Sequence[Path]) -> str:
    """Check that every field is there, the README is the description, and no file names the checkout."""
    for wheel in wheels:
        fields = metadata(wheel)
        missing = [name for name in REQUIRED if not fields[name]]
        assert not missing, f"{wheel.name}: no {', '.join(missing)}"
        assert len(str(fields.get_payload())) > 200, f"{wheel.name}: the README is not its description"
        with zipfile.ZipFile(wheel) as archive:
            named = [name for name in archive.namelist() if str(ROOT).encode() in archive.read(name)]
        assert not named, f"{wheel.name}: {', '.join(named)} names {ROOT}"
    (core,) = (wheel for wheel in wheels if wheel.name.startswith("rlm_plugins-"))
    assert set(metadata(core).get_all("Provides-Extra") or ()) >= EXTRAS, "an extra is missing"
    return f"{len(wheels)} wheels"


def check_pages(wheels: Sequence[Path], place: Path) -> str:
    """Check with twine that each README renders."""
    tools = environment(place / "tools", "twine")
    text = run(str(tools), "-m", "twine", "check", "--strict", *map(str, wheels))
    return f"{text.count('PASSED')} pages render"


def check_install(wheels: Sequence[Path], place: Path) -> str:
    """Install the core with all packages in an empty environment, and train two steps in another folder."""
    needed = [x for x in wheels if metadata(x)["Name"] not in LEFT_OUT]
    python = environment(place / "alone", "torch", *map(str, needed))
    work = place / "work"
    work.mkdir()
    (work / "recipe.yaml").write_text(RECIPE)
    rlm = str(python.parent / "rlm")
    for command in (["check", "recipe.yaml"], ["train", "recipe.yaml", "--name", "two"]):
        run(rlm, *command, where=work)
    assert (work / "runs" / "two" / "summary.json").exists(), "the run has no summary.json"
    paths = run(str(python), "-c", "import rlm_plugins, sys; print(rlm_plugins.__file__, sys.path)", where=work)
    assert str(ROOT) not in paths, f"the checkout is imported: {paths}"
    return f"{len(needed)} wheels installed alone, checked and trained two steps"


def check_names(wheels: Sequence[Path]) -> str:
    """Check that PyPI has no package of these names."""
    names = [str(metadata(wheel)["Name"]) for wheel in wheels]
    taken = [x for x in names if "Available versions" in run(sys.executable, *PIP, "index", "versions", x, quiet=True)]
    assert not taken, f"PyPI has another package of this name: {', '.join(taken)}"
    return f"{len(names)} names are free"


def environment(folder: Path, *wanted: str) -> Path:
    """Create an environment with these packages, and return its interpreter."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    run(str(python), *PIP, "install", "-qq", "--no-compile", "-c", str(ROOT / "constraints.txt"), *wanted)
    return python


def main() -> int:
    """Run all checks, and return how many failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        wheels = built(place / "wheels")
        checks: dict[str, Callable[[], str]] = {
            "metadata": lambda: check_metadata(wheels),
            "pages": lambda: check_pages(wheels, place),
            "install": lambda: check_install(wheels, place),
        }
        if os.environ.get("NAMES") == "1":
            checks["names"] = lambda: check_names(wheels)
        for name, check in checks.items():
            try:
                print(f"{name}: {check()}", flush=True)
            except (AssertionError, SystemExit) as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
