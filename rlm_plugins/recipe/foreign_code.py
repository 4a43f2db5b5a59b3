"""Foreign code that a recipe runs: plugin files, addressed functions, packages, code of models. Nothing is imported.

Servers and repositories of the hub to which a recipe sends data are listed with it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import addressed_files, nodes, package_addresses
from rlm_plugins.registry.index import origin_of, tolerate_damage
from rlm_plugins.registry.loading import GROUP

Kind = Literal["file", "function", "package", "model", "kernel", "server", "upload"]
RECEIVERS = ("server", "upload")
"""Kinds that run no code here: they receive texts, a key, or the model."""


@dataclass(frozen=True)
class ForeignCode:
    """One piece of code that a recipe runs.

    Args:
        kind: ``file`` (a plugin), ``function`` (of a file), ``package``, ``model`` (`trust_remote_code`), ``kernel``
            (`attn_implementation` of the hub), ``server``, or ``upload`` (to the hub).
        name: The file, address, package, model, kernel, URL, or repository.
        version: SHA-256 of a file, version of a package, revision of a model or kernel; the key that a server receives.
        addresses: Functions of a package that the recipe names.
    """

    kind: Kind
    name: str
    version: str
    addresses: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Key in the list of trusted code; consent to one function of a file is none to another one."""
        if self.kind == "file":
            return f"sha256:{self.version}"
        if self.kind == "function":
            return f"sha256:{self.version}:{self.name.rpartition(':')[2]}"
        return " ".join((self.kind, self.name, self.version, *self.addresses))


def foreign_code(recipe: Recipe, *, is_run: bool = False) -> list[ForeignCode]:
    """Return the code that a recipe runs beside installed plugins, without running any.

    Files outside its folder are left out, and so refused, unless the recipe is that of a run (`is_run`).
    """
    sources = [ForeignCode("file", str(path), _digest(path)) for path in recipe.load]
    folder = recipe.path.parent.resolve()
    for path, address in addressed_files(recipe.bodies):
        if is_run or path.is_relative_to(folder):
            sources.append(ForeignCode("function", address, _digest(path)))
    for position, name in enumerate(recipe.packages):
        version = _version(name, f"plugins.packages[{position}]")
        sources.append(ForeignCode("package", name, version, package_addresses(recipe.bodies, name)))
    sources += [ForeignCode("model", name, version) for name, version in _remote(recipe.bodies)]
    for steps, entry in nodes(recipe.bodies):  # transformers downloads `owner/name` as compiled code
        if steps[-1:] == ("attn_implementation",) and "/" in str(entry):
            sources.append(ForeignCode("kernel", str(entry), "of the hub"))
    sources += receivers(recipe.bodies)
    return list(dict.fromkeys(sources))


def installed_plugins() -> list[str]:
    """Return name and version of the distributions that offer plugins: ``rlm-math 0.1.0``."""
    tolerate_damage()
    points = importlib.metadata.entry_points(group=GROUP)
    return sorted({origin_of(point.dist) for point in points if point.dist is not None})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version(name: str, where: str) -> str:
    """Return the version of the installed package with the top-level module `name`."""
    distributions = importlib.metadata.packages_distributions().get(name) or [name]
    try:
        if name in sys.stdlib_module_names:
            raise importlib.metadata.PackageNotFoundError
        return importlib.metadata.version(distributions[0])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        problem = f"expected the name of an installed package, got '{name}'"
        raise RecipeError(problem, where=where, hint="the standard library is no package") from None


def _remote(value: Any, with_path: Mapping[str, Any] | None = None) -> Iterator[tuple[str, str]]:
    """Yield model and revision of every mapping with `trust_remote_code`; the path may be in an enclosing one.

    Without a path the version is a digest of the settings, so that two such models are never confused.
    """
    if isinstance(value, list):
        for entry in value:
            yield from _remote(entry, with_path)
    elif isinstance(value, Mapping):
        with_path = value if value.get("path") else with_path
        if value.get("trust_remote_code") and with_path is None:
            settings = json.dumps(value, sort_keys=True, default=str).encode()
            yield str(value.get("name") or "the model"), f"settings sha256:{hashlib.sha256(settings).hexdigest()}"
        elif value.get("trust_remote_code") and with_path is not None:
            revision = value.get("revision") or with_path.get("revision") or "main"
            yield str(with_path["path"]), _code_of_folder(Path(str(with_path["path"]))) or f"revision {revision}"
        for entry in value.values():
            yield from _remote(entry, with_path)


def receivers(value: Any) -> Iterator[ForeignCode]:
    """Yield the remote servers (`url`, `*_url`, `*_host`) and repositories that receive texts, keys or models."""
    for section in (node for _, node in nodes(value) if isinstance(node, dict)):
        keys = [str(name) for key, name in section.items() if str(key).endswith("_env") and name]
        for key, entry in section.items():
            is_server = key == "url" or str(key).endswith(("_url", "_host"))
            if is_server and isinstance(entry, str) and not _is_this_machine(entry):
                yield ForeignCode("server", entry, f"receives {', '.join(keys)}" if keys else "receives no key")
        if section.get("push_to_hub"):
            yield ForeignCode("upload", str(section.get("hub_model_id")), "of the hub")


def _is_this_machine(address: str) -> bool:
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        return False
    return host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _code_of_folder(folder: Path) -> str:
    """Return a digest of code and JSON (an `auto_map` may name code) of a local model; empty if it is no folder."""
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *folder.glob("*.json")]):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return f"sha256:{digest.hexdigest()}"
