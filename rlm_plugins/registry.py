"""Who offers which part: finds plugins, calls every hook once, and answers look-ups by name."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from rlm_plugins import __version__, builtin, hookspecs
from rlm_plugins.errors import PluginError, RecipeError, nearest
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.parts import Part
from rlm_plugins.rows import Row

BUILTIN = "builtin"
GROUP = "rlm"


@dataclass
class Plugin:
    """One source of parts.

    Args:
        name: Entry-point name, or the stem of a single file; ``builtin`` for our own.
        origin: Distribution and version, or the file and the start of its hash.
        error: What went wrong while it was imported or checked; None when it is sound.
        at_fault: Whether the error is a broken contract (stops every run) rather than a failed import (stops the
            runs that use it).
    """

    name: str
    origin: str
    error: BaseException | None = None
    at_fault: bool = False


class Registry:
    """All plugins and all parts.

    Args:
        load: Python files to load as plugins, beside the installed ones.
        block: Names of installed plugins to leave out.
    """

    def __init__(self, load: Sequence[str | Path] = (), block: Sequence[str] = ()) -> None:
        self.plugins: dict[str, Plugin] = {}
        self.parts: dict[tuple[str, str], list[Part]] = {}
        self._manager = pluggy.PluginManager("rlm")
        self._manager.add_hookspecs(hookspecs)
        if os.environ.get("RLM_TRACE") == "1":
            self._manager.trace.root.setwriter(sys.stderr.write)
            self._manager.enable_tracing()
        self._add_builtins()
        self._add_installed(set(block))
        for path in load:
            self._add_file(Path(path))

    # -- finding plugins

    def _add_builtins(self) -> None:
        self.plugins[BUILTIN] = Plugin(BUILTIN, f"rlm-plugins {__version__}")
        for module in builtin.modules():
            self._adopt(BUILTIN, module)

    def _add_installed(self, block: set[str]) -> None:
        points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda p: (p.name, p.value))
        if unknown := block - {p.name for p in points}:
            name = sorted(unknown)[0]
            raise RecipeError(
                f"no installed plugin is called '{name}'",
                where="plugins.block",
                allowed=", ".join(sorted({p.name for p in points})) or "nothing: no plugin is installed",
                hint=nearest(name, [p.name for p in points]),
            )
        for point in points:
            if point.name in block:
                continue
            dist = point.dist
            origin = f"{dist.name} {dist.version}" if dist else point.value
            if point.name in self.plugins:
                rival = self.plugins[point.name]
                rival.error = PluginError(
                    f"two plugins are called '{point.name}': {rival.origin} and {origin}",
                    hint="uninstall one of them, or block the name in the recipe",
                )
                rival.at_fault = True
                continue
            self.plugins[point.name] = Plugin(point.name, origin)
            self._import(point.name, point.load)

    def _add_file(self, path: Path) -> None:
        name = path.stem
        where = f"plugins.load: {path}"
        if not path.is_file():
            raise RecipeError("there is no such file", where=where, hint="the path is relative to the recipe")
        if name in self.plugins:
            raise RecipeError(f"a plugin is already called '{name}'", where=where, hint="rename the file")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self.plugins[name] = Plugin(name, f"{path} sha256:{digest}")
        self._import(name, lambda: _module_from(path))
        if error := self.plugins[name].error:
            raise PluginError(f"the file cannot be loaded: {error}", where=where) from error

    def _import(self, name: str, load: Any) -> None:
        plugin = self.plugins[name]
        try:
            module = load()
        except (Exception, SystemExit) as error:
            plugin.error = error
            return
        try:
            self._adopt(name, module)
        except PluginError as error:
            plugin.error, plugin.at_fault = error, True
        except Exception as error:
            plugin.error = error

    # -- calling hooks

    def _adopt(self, name: str, module: ModuleType | Any) -> None:
        """Calls every hook of a module once and files its parts; all of them, or none."""
        self._check_hooks(name, module)
        registered = f"{name}:{getattr(module, '__name__', id(module))}"
        self._manager.register(module, registered)
        others = [p for p in self._manager.get_plugins() if p is not module]
        found: list[Part] = []
        for hook in HOOKS:
            caller = self._manager.subset_hook_caller(hook, others)
            for offer in caller():
                found += [_part(hook, name, part, target) for part, target in dict(offer).items()]
        for part in found:
            self.parts.setdefault((part.hook, part.name), []).append(part)

    @staticmethod
    def _check_hooks(name: str, module: Any) -> None:
        for attribute, value in vars(module).items():
            if not inspect.isfunction(value) or not hasattr(value, "rlm_impl"):
                continue
            where = f"plugin '{name}' ({inspect.getsourcefile(value) or '?'})"
            if attribute not in HOOKS:
                raise PluginError(
                    f"there is no hook '{attribute}'",
                    where=where,
                    allowed=", ".join(HOOKS),
                    hint=nearest(attribute, HOOKS),
                )
            if inspect.signature(value).parameters:
                raise PluginError(f"hook '{attribute}' takes no arguments", where=where, hint=f"def {attribute}():")

    # -- answering

    def require_sound(self) -> None:
        """Stops at the first plugin that breaks the contract.

        Raises:
            PluginError: It names the plugin, the file and the nearest right name.
        """
        for plugin in self.plugins.values():
            if plugin.at_fault and isinstance(plugin.error, PluginError):
                raise plugin.error

    def find(self, hook: str, name: str, *, where: str = "") -> Part:
        """The part a recipe means by `name`: ``plugin/name``, or bare where only one plugin offers it.

        Raises:
            RecipeError: Nobody offers it, or several do; with the traceback of a broken plugin as its cause.
        """
        plugin, _, bare = name.rpartition("/")
        rivals = [p for p in self.parts.get((hook, bare), []) if plugin in ("", p.plugin)]
        own = [p for p in rivals if p.plugin == BUILTIN]
        if len(own or rivals) == 1:
            return (own or rivals)[0]
        if rivals:
            raise RecipeError(
                f"several plugins offer a part called '{name}'",
                where=where,
                allowed=", ".join(p.full_name for p in rivals),
                hint="write the full name",
            )
        raise self._unknown(hook, name, plugin, where)

    def _unknown(self, hook: str, name: str, plugin: str, where: str) -> RecipeError:
        key = HOOKS[hook].key
        broken = [p for p in self.plugins.values() if p.error and plugin in ("", p.name)]
        names = self.names(hook)
        hint = nearest(name, names + [p.full_name for p in self])
        if broken:
            hint = f"{hint} " if hint else ""
            hint += f"not loaded: {', '.join(f'{p.name} ({p.error})' for p in broken)}; see `rlm plugins`"
        error = RecipeError(f"no part for '{key}' is called '{name}'", where=where, allowed=", ".join(names), hint=hint)
        error.__cause__ = broken[0].error if broken else None
        return error

    def names(self, hook: str) -> list[str]:
        """Every name that finds a part of `hook`, shortest form, built-ins first."""
        found = []
        for part in (p for p in self if p.hook == hook):
            rivals = self.parts[hook, part.name]
            alone = part.plugin == BUILTIN or len(rivals) == 1
            found.append(part.name if alone else part.full_name)
        return found

    def __iter__(self) -> Iterator[Part]:
        """All parts, in batch order of their hooks."""
        order = list(HOOKS)
        everything = [part for parts in self.parts.values() for part in parts]
        return iter(sorted(everything, key=lambda p: order.index(p.hook)))


def _part(hook: str, plugin: str, name: Any, target: Any) -> Part:
    part = Part(hook, name, plugin, target)
    if not isinstance(name, str) or not name or "/" in name:
        raise PluginError(
            f"{hook} offers a part called {name!r}", where=f"plugin '{plugin}'", allowed="text without '/'"
        )
    if hook == "rlm_algorithms":
        if not isinstance(target, Row):
            raise PluginError(f"'{name}' is no Row", where=f"plugin '{plugin}', {hook}", allowed="rlm_plugins.rows.Row")
    else:
        part.check()
    return part


def _module_from(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rlm_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
