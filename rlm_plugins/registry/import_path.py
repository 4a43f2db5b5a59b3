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
    """Limit the addresses that :func:`borrow` resolves in this process; None: no limit, as for Python callers."""
    global _limits
    _limits = limits


def canonical(address: str) -> str:
    """Return the address of a function of a file with its resolved path."""
    place, _, name = address.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{name}"


def borrow(address: str, *, where: str) -> Any:
    """Return the object at an address.

    Args:
        address: ``trl.rewards:think_format_reward``, ``./scores.py:compute_score``.
        where: Recipe path of the knob, for errors.

    Raises:
        RecipeError: Unknown module, file or name, or the import fails.
    """
    place, _, name = address.rpartition(":")
    if not place or not name:
        raise RecipeError(f"expected an address, got '{address}'", where=where, allowed=ALLOWED)
    is_file = place.endswith(".py")
    if _limits is not None and not is_file and place.partition(".")[0] not in _limits.packages:
        raise _not_named(place.partition(".")[0], where)
    try:
        module = _file(address, where) if is_file else importlib.import_module(place)
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"'{place}' cannot be loaded: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=where, allowed=ALLOWED) from error
    target: Any = module
    for step in name.split("."):
        if not hasattr(target, step):
            hint = nearest(step, [each for each in dir(target) if not each.startswith("_")])
            raise RecipeError(f"unknown name '{name}' in '{place}'", where=where, hint=hint)
        target = getattr(target, step)
        if _limits is not None and is_file and isinstance(target, ModuleType):
            raise RecipeError(f"'{address}' leads to '{target.__name__}', not to the file", where=where, allowed=ALLOWED)
    if _limits is not None and not is_file:
        _require_own(target, address, where)
    return target


def _not_named(package: str, where: str) -> RecipeError:
    return RecipeError(
        f"'{package}' is no package that the recipe names",
        where=where,
        allowed="files in the folder of the recipe, and installed packages under `plugins.packages`",
        hint=f"plugins: {{packages: [{package}]}}, if it is an installed package",
    )


def _require_own(target: Any, address: str, where: str) -> None:
    """Check that an object of a package is its own, not a module or function that it has imported."""
    assert _limits is not None
    is_code = inspect.isroutine(target) or isinstance(target, type)
    owner = getattr(target, "__module__", None) if is_code else ""
    if isinstance(target, ModuleType):
        owner = target.__name__
    if owner is None or (owner and owner.partition(".")[0] not in _limits.packages):
        raise RecipeError(f"'{address}' belongs to '{owner}', not to the package", where=where, allowed=ALLOWED)


def borrow_function(address: str, *, where: str) -> Callable[..., Any]:
    """Return the function at an address.

    Raises:
        RecipeError: As :func:`borrow`, or the object cannot be called.
    """
    function = borrow(address, where=where)
    if not callable(function):
        raise RecipeError(f"expected a function at '{address}', got {type(function).__name__}", where=where)
    return function  # type: ignore[no-any-return]


def _file(address: str, where: str) -> ModuleType:
    """Execute the file of an address as a module; the bytes that run are those that are trusted."""
    path = Path(address.rpartition(":")[0]).expanduser()
    known = None if _limits is None else _limits.functions.get(canonical(address), "")
    if known == "":
        problem = f"'{path}' is no file in the folder of the recipe"
        raise RecipeError(problem, where=where, allowed=ALLOWED, hint="copy the file beside the recipe")
    source = path.read_bytes()
    _require_digest(path, source, known, where)
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


def _require_digest(path: Path, source: bytes, known: str | None, where: str) -> None:
    if known is not None and hashlib.sha256(source).hexdigest() != known:
        raise RecipeError(f"'{path}' has changed since the command started", where=where, hint="run it again")


def called(function: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """Call `function` with those of the known values that it takes by name."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(**known)
    return function(**{name: value for name, value in known.items() if name in parameters})


def settled(entries: Sequence[Any]) -> list[Any]:
    """Return results, with those of asynchronous functions awaited together."""
    if not any(inspect.isawaitable(each) for each in entries):
        return list(entries)

    async def one(each: Any) -> Any:
        return await each if isinstance(each, Awaitable) else each

    async def together() -> list[Any]:
        return await asyncio.gather(*map(one, entries))

    return asyncio.run(together())
