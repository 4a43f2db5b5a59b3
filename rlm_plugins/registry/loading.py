"""Imports of foreign code: plugins with the hooks of their modules, and functions by their address.

A command that reads a recipe limits the addresses to the files and packages that its user trusts: see :func:`limit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import importlib.metadata
import inspect
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from rlm_plugins import __version__
from rlm_plugins.equation.hooks import API, HOOKS
from rlm_plugins.errors import PluginError, RecipeError, nearest
from rlm_plugins.registry.contract import accepted, file_of
from rlm_plugins.registry.index import DAMAGED, module_of, origin_of, tolerate_damage

ALLOWED = "`package.module:name`, or `folder/file.py:name` from the folder of the recipe"


@dataclass(frozen=True)
class Limits:
    """Plugin files, packages, and functions of files (by canonical address) that a recipe may run; files by SHA-256."""

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
        raise RecipeError(
            f"'{package}' is no package that the recipe names",
            where=where,
            allowed="files in the folder of the recipe, and installed packages under `plugins.packages`",
            hint=f"plugins: {{packages: [{package}]}}, if it is an installed package",
        )
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
    """Return the function at an address."""
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
    return _module(f"rlm_borrowed_{path.stem}", path, source)


def _require_digest(path: Path, source: bytes, trusted: str | None, where: str) -> None:
    """Check that the bytes of a file are those that the user trusts; None: nothing limits it."""
    if trusted is not None and hashlib.sha256(source).hexdigest() != trusted:
        raise RecipeError(f"'{path}' has changed since the command started", where=where, hint="run it again")


def call_with_accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call `function` with those of the `arguments` that it has parameters for."""
    return function(**accepted(function, arguments))


def await_all(results: Sequence[Any]) -> list[Any]:
    """Return the results, with awaitables awaited concurrently."""
    if not any(inspect.isawaitable(result) for result in results):
        return list(results)

    async def awaited(result: Any) -> Any:
        return await result if isinstance(result, Awaitable) else result

    async def gathered() -> list[Any]:
        return await asyncio.gather(*map(awaited, results))

    return asyncio.run(gathered())


GROUP = "rlm"
"""The entry-point group under which packages register."""


@dataclass
class Plugin:
    """A source of parts.

    Args:
        name: Entry-point name, or the stem of a single file; ``builtin`` for our own.
        origin: Distribution and version, or the file and the start of its hash.
        error: The exception of its import or its validation; None if it is valid.
        module: Origin, and module of the entry point.
    """

    name: str
    origin: str
    error: BaseException | None = None
    module: str = ""

    @property
    def hint(self) -> str:
        """The requirement that is not met, if its import failed."""
        return "" if self.error is None else required_version(self.origin)


PluginLoader = tuple[Plugin, Callable[[], Any]]
"""A plugin, and the function that imports its module."""


def installed() -> list[PluginLoader]:
    """Return every entry point of the group by name, and a broken plugin per damaged distribution, without import."""
    tolerate_damage()
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda p: (p.name, p.value))
    plugins: list[PluginLoader] = [
        (Plugin(p.name, origin_of(p.dist) or p.value, module=module_of(p)), p.load) for p in points
    ]
    return plugins + [
        (Plugin(origin.rpartition(" ")[0], origin), partial(_fail, problem))
        for origin, problem in sorted(DAMAGED.items())
    ]


def _fail(problem: str) -> NoReturn:
    raise ImportError(problem)


def required_version(origin: str) -> str:
    """Return the first requirement of a distribution that an installed package does not meet; empty without."""
    with contextlib.suppress(Exception):
        for text in importlib.metadata.requires(origin.split()[0]) or ():
            if not re.search("[<>=!~]=?", text.partition(";")[0]):
                continue
            from packaging.requirements import Requirement

            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                    version = importlib.metadata.version(requirement.name)
                    if not requirement.specifier.contains(version, prereleases=True):
                        return f"it requires {requirement.name}{requirement.specifier}, and {version} is installed"
    return ""


def single_file(path: Path) -> PluginLoader:
    """Return a Python file as a plugin of its own; the bytes that run are those that were hashed."""
    source = path.read_bytes()
    _require_digest(path, source, None if _limits is None else _limits.files.get(path.resolve()), "plugins.load")
    plugin = Plugin(path.stem, f"{path} sha256:{hashlib.sha256(source).hexdigest()[:12]}")
    return plugin, lambda: _module(f"rlm_file_{path.stem}", path, source)


def _module(name: str, path: Path, source: bytes) -> ModuleType:
    """Execute the file as a module; Python's own loader would write a ``__pycache__`` and trust it."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class up by the name of its module
    exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    return module


def line_of(error: BaseException, path: Path) -> str:
    """Return the line of a file that raised an error; empty for a syntax error."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"line {lines[-1].lineno}: {lines[-1].line}" if lines else ""


def hooks_of(plugin: str, module: Any) -> dict[str, str]:
    """Return the hooks that a module implements, each with its file."""
    if (api := getattr(module, "rlm_api", API)) != API and not (isinstance(api, int) and api < API):
        raise ImportError(f"its hooks are those of API {api}, and this is API {API} (rlm-plugins {__version__})")
    hooks = {}
    for name, function in _functions(module):
        mark = getattr(function, "rlm_impl", None)
        hook = mark and (mark.get("specname") or name)
        file = file_of(function)
        where = f"plugin '{plugin}' ({file})"
        if hook is None:
            if name in HOOKS and not hasattr(function, "rlm_spec"):
                hint = f"add `@hookimpl` above `def {name}`"
                raise PluginError(f"'{name}' is not marked with `@hookimpl`", where=where, hint=hint)
        elif hook not in HOOKS:
            raise PluginError(
                f"unknown hook '{hook}'", where=where, allowed=", ".join(HOOKS), hint=nearest(hook, HOOKS)
            )
        elif inspect.signature(function).parameters:
            raise PluginError(f"hook '{hook}' takes no arguments", where=where, hint=f"def {name}():")
        else:
            hooks[hook] = file
    if not hooks:
        raise _no_hook(plugin, module)
    return {hook: hooks[hook] for hook in HOOKS if hook in hooks}


def _functions(module: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(module):
        value = getattr(module, name, None)
        if inspect.isroutine(value):
            yield name, value


def _no_hook(plugin: str, module: Any) -> PluginError:
    unmarked = [name for name, _ in _functions(module) if name.startswith("rlm_")]
    return PluginError(
        "implements no hook",
        where=f"plugin '{plugin}' ({getattr(module, '__file__', module)})",
        allowed=", ".join(HOOKS),
        hint=(nearest(unmarked[0], HOOKS) if unmarked else "") or "a hook is a function of that name, under @hookimpl",
    )


def validated_parts(plugin: str, hook: str, file: str, result: object) -> Mapping[str, Any]:
    """Return the result of a hook, validated as a mapping from names to parts."""
    where = f"plugin '{plugin}', {hook} ({file})"
    if not isinstance(result, Mapping):
        raise PluginError(f'expected {{"name": part, …}}, got {type(result).__name__}', where=where)
    for name in result:
        if not isinstance(name, str) or not _is_name(name, hook):
            allowed = "a letter, then letters, digits, '_' and '-'"
            allowed += "; of an algorithm's variant: algorithm@library" if hook == "rlm_algorithms" else ""
            raise PluginError(f"registers a part called {name!r}", where=where, allowed=allowed)
    return result


def _is_name(name: str, hook: str) -> bool:
    algorithm, *convention = name.split("@") if hook == "rlm_algorithms" else [name]
    return len(convention) < 2 and all(word.replace("-", "_").isidentifier() for word in (algorithm, *convention))
