"""Import of a third-party function by its address: ``package.module:function``, or ``folder/file.py:function``.

A command that reads a recipe limits the addresses to the files and packages that its user trusts: see :func:`limit`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

ALLOWED = "`package.module:name`, or `folder/file.py:name` from the folder of the recipe"


@dataclass(frozen=True)
class Limits:
    """Files and packages that a recipe may run by address.

    Args:
        files: Plugin file → SHA-256 of its bytes.
        packages: Top-level names of installed packages.
        functions: Canonical address of a function of a file → SHA-256 of the file.
    """

    files: Mapping[Path, str]
    packages: frozenset[str]
    functions: Mapping[str, str] = field(default_factory=dict)


_limits: Limits | None = None


def limit(limits: Limits | None) -> None:
    """Limit the addresses that :func:`import_object` resolves in this process; None: no limit (Python callers)."""
    global _limits
    _limits = limits


def canonical(address: str) -> str:
    """Return the address of a function of a file with its resolved path."""
    file, _, name = address.rpartition(":")
    return f"{Path(file).expanduser().resolve()}:{name}"


def import_object(address: str, *, where: str) -> Any:
    """Return the object at an address.

    Args:
        address: ``trl.rewards:think_format_reward``, ``./scores.py:compute_score``.
        where: Recipe path of the knob, for errors.

    Raises:
        RecipeError: Unknown module, file or name, or the import fails.
    """
    module_path, _, name = address.rpartition(":")
    if not module_path or not name:
        raise RecipeError(f"expected an address, got '{address}'", where=where, allowed=ALLOWED)
    is_file = module_path.endswith(".py")
    package = module_path.partition(".")[0]
    if _limits is not None and not is_file and package not in _limits.packages:
        raise _unlisted_package(package, where)
    try:
        module = _import_file(address, where) if is_file else importlib.import_module(module_path)
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"'{module_path}' cannot be loaded: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=where, allowed=ALLOWED) from error
    target: Any = module
    for step in name.split("."):
        if not hasattr(target, step):
            hint = nearest(step, [name for name in dir(target) if not name.startswith("_")])
            raise RecipeError(f"unknown name '{name}' in '{module_path}'", where=where, hint=hint)
        target = getattr(target, step)
        if _limits is not None and is_file and isinstance(target, ModuleType):
            raise RecipeError(
                f"'{address}' leads to '{target.__name__}', not to the file", where=where, allowed=ALLOWED
            )
    if _limits is not None and not is_file:
        _require_same_package(target, address, where)
    return target


def _unlisted_package(package: str, where: str) -> RecipeError:
    return RecipeError(
        f"'{package}' is no package that the recipe names",
        where=where,
        allowed="files in the folder of the recipe, and installed packages under `plugins.packages`",
        hint=f"plugins: {{packages: [{package}]}}, if it is an installed package",
    )


def _require_same_package(target: Any, address: str, where: str) -> None:
    """Check that an object was defined in a trusted package, not imported there from another one."""
    assert _limits is not None
    is_code = inspect.isroutine(target) or isinstance(target, type)
    owner = getattr(target, "__module__", None) if is_code else ""
    if isinstance(target, ModuleType):
        owner = target.__name__
    if owner is None or (owner and owner.partition(".")[0] not in _limits.packages):
        raise RecipeError(f"'{address}' belongs to '{owner}', not to the package", where=where, allowed=ALLOWED)


def import_function(address: str, *, where: str) -> Callable[..., Any]:
    """Return the function at an address.

    Raises:
        RecipeError: As :func:`import_object`, or the object cannot be called.
    """
    function = import_object(address, where=where)
    if not callable(function):
        raise RecipeError(f"expected a function at '{address}', got {type(function).__name__}", where=where)
    return function  # type: ignore[no-any-return]


def _import_file(address: str, where: str) -> ModuleType:
    """Execute the file of an address as a module; the bytes that run are those that are trusted."""
    path = Path(address.rpartition(":")[0]).expanduser()
    trusted = None if _limits is None else _limits.functions.get(canonical(address), "")
    if trusted == "":
        problem = f"'{path}' is no file in the folder of the recipe"
        raise RecipeError(problem, where=where, allowed=ALLOWED, hint="copy the file beside the recipe")
    source = path.read_bytes()
    _require_digest(path, source, trusted, where)
    module = ModuleType(f"rlm_borrowed_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    return module


def require_unchanged(path: Path, source: bytes, where: str) -> None:
    """Return if the bytes of a plugin file are those that the user trusts, or if nothing limits it.

    Raises:
        RecipeError: The file was trusted with other contents.
    """
    _require_digest(path, source, None if _limits is None else _limits.files.get(path.resolve()), where)


def _require_digest(path: Path, source: bytes, trusted: str | None, where: str) -> None:
    if trusted is not None and hashlib.sha256(source).hexdigest() != trusted:
        raise RecipeError(f"'{path}' has changed since the command started", where=where, hint="run it again")


def call_with_accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call `function` with those of the `arguments` that it has parameters for."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(**arguments)
    return function(**{name: value for name, value in arguments.items() if name in parameters})


def await_all(results: Sequence[Any]) -> list[Any]:
    """Return the results, with awaitables awaited concurrently."""
    if not any(inspect.isawaitable(result) for result in results):
        return list(results)

    async def awaited(result: Any) -> Any:
        return await result if isinstance(result, Awaitable) else result

    async def gathered() -> list[Any]:
        return await asyncio.gather(*map(awaited, results))

    return asyncio.run(gathered())
