"""Discovery of plugins: installed packages and single files, and the hooks of their modules."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from rlm_plugins import __version__
from rlm_plugins.entry_points import DAMAGED, origin_of, tolerate_damage
from rlm_plugins.errors import PluginError, nearest
from rlm_plugins.hooks import API, HOOKS
from rlm_plugins.registry.import_path import require_unchanged
from rlm_plugins.registry.index import module_of
from rlm_plugins.registry.signature import file_of

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
        """The version of this package that it requires, if its import failed and another one is installed."""
        return "" if self.error is None else required_version(self.origin)


class LaterApiError(ImportError):
    """A plugin whose attribute `rlm_api` is later than `hooks.API`."""


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
    """Return the version of this package that a distribution requires, if it is not the installed one; else empty."""
    with contextlib.suppress(Exception):
        for text in importlib.metadata.requires(origin.split()[0]) or ():
            if not re.match(r"rlm[-_.]plugins\W*[<>=!~]", text, re.IGNORECASE):
                continue
            from packaging.requirements import Requirement

            requirement = Requirement(text)
            if __version__ not in requirement.specifier:
                return f"it requires rlm-plugins{requirement.specifier}, and {__version__} is installed"
    return ""


def single_file(path: Path) -> PluginLoader:
    """Return a Python file as a plugin of its own; the bytes that run are those that were hashed."""
    source = path.read_bytes()
    require_unchanged(path, source, "plugins.load")
    plugin = Plugin(path.stem, f"{path} sha256:{hashlib.sha256(source).hexdigest()[:12]}")
    return plugin, lambda: _module(path, source)


def _module(path: Path, source: bytes) -> ModuleType:
    """Execute the file as a module; Python's own loader would write a ``__pycache__`` and trust it."""
    module = ModuleType(f"rlm_file_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class up by the name of its module
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def line_of(error: BaseException, path: Path) -> str:
    """Return the line of a file that raised an error; empty for a syntax error."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"line {lines[-1].lineno}: {lines[-1].line}" if lines else ""


def hooks_of(plugin: str, module: Any) -> dict[str, str]:
    """Return the hooks that a module implements, each with its file.

    Raises:
        LaterApiError: The module declares a later `rlm_api`.
        PluginError: An unknown hook, one that takes arguments or is not marked; or no hook at all.
    """
    if (api := getattr(module, "rlm_api", API)) != API and not (isinstance(api, int) and api < API):
        raise LaterApiError(f"its hooks are those of API {api}, and this is API {API} (rlm-plugins {__version__})")
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
    """Return the result of a hook, validated as a mapping from names to parts.

    Raises:
        PluginError: It is none, or has an invalid name.
    """
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
