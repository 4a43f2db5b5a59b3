"""The registry: every plugin is loaded, and each of its hooks is called once."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pluggy

from rlm_plugins import __version__, builtin, hookspecs
from rlm_plugins.errors import PluginError, RecipeError, nearest
from rlm_plugins.registry.catalog import BUILTIN, Catalog
from rlm_plugins.registry.disabled import disabled
from rlm_plugins.registry.index import PluginIndex
from rlm_plugins.registry.loading import (
    Plugin,
    hooks_of,
    installed,
    line_of,
    single_file,
    validated_parts,
)
from rlm_plugins.registry.part import Part
from rlm_plugins.workers.time_limit import CallTimeout, is_of_call, time_limit

__all__ = ["BUILTIN", "Registry"]
_LOG = logging.getLogger(__name__)


IMPORT_SECONDS = 120.0
"""Seconds that the import of one plugin and the calls of its hooks may take."""


class Registry(Catalog):
    """The catalog of all parts: built-in, installed, or loaded by a recipe.

    An installed plugin is imported when one of its parts is looked up.

    Args:
        load: Python files to load as plugins, beside the installed ones.
        block: Names of installed plugins to leave out.

    Raises:
        RecipeError: An unknown file or blocked plugin.
        PluginError: A file that cannot be loaded.
    """

    def __init__(self, load: Sequence[str | Path] = (), block: Collection[str] = ()) -> None:
        super().__init__()
        self.blocked = frozenset(block)
        self._manager = pluggy.PluginManager("rlm")
        self._manager.add_hookspecs(hookspecs)
        if os.environ.get("RLM_TRACE") == "1":
            self._manager.add_hookcall_monitoring(lambda *_: None, _trace)
        self.plugins[BUILTIN] = Plugin(BUILTIN, f"rlm-plugins {__version__}")
        for module in builtin.modules():
            for part in self._parts_of(BUILTIN, module):
                self.add(part)
        self._pending: dict[str, Callable[[], Any]] = {}
        self._find_installed()
        for path in load:
            self._add_file(Path(path))

    # -- installed plugins

    def _find_installed(self) -> None:
        """Add the installed plugins, none of which is imported yet."""
        plugins, disabled_names = installed(), disabled()
        names = sorted({plugin.name for plugin, _ in plugins})
        if unknown := sorted(self.blocked.difference(names)):
            raise RecipeError(
                f"unknown installed plugin '{unknown[0]}'",
                where="plugins.block",
                allowed=", ".join(names) or "nothing: no plugin is installed",
                hint=nearest(unknown[0], names),
            )
        for plugin, load in plugins:
            if plugin.name in self.blocked or plugin.name in disabled_names:
                continue
            if plugin.name in self.plugins:
                self._reject_duplicate(plugin)
            else:
                self.plugins[plugin.name] = plugin
                self._pending[plugin.name] = load
        self.index = PluginIndex({name: self.plugins[name].module for name in self._pending})

    def load_offering(self, hook: str, name: str) -> None:
        """Import the installed plugins that may offer a part: by the index, or because it does not know them."""
        plugin, _, bare = name.rpartition("/")
        if any(part.plugin == BUILTIN for part in self.parts.get((hook, bare), ())) and plugin in ("", BUILTIN):
            return
        for candidate in [plugin] if plugin else self.index.offering(hook, bare):
            self._load(candidate)

    def load_all(self) -> None:
        """Import every installed plugin."""
        for name in list(self._pending):
            self._load(name)

    def _load(self, name: str) -> None:
        """Import an installed plugin; one that fails is left out, and stops only what names its parts."""
        if (load := self._pending.pop(name, None)) is None:
            return
        plugin = self.plugins[name]
        self._add(plugin, load)
        if plugin.error is None:
            self.index.record(name, self._names_of(name))
            return
        reason = f"{type(plugin.error).__name__}: {plugin.error}".partition("\n")[0]
        hint = f"`rlm plugins --disable {name}` leaves it out without this line"
        _LOG.warning("the plugin '%s' is left out: %s\n  hint: %s", name, reason, hint)

    def names_of(self, hook: str) -> set[str]:
        """Return the bare names of all parts of a hook; only plugins that the index does not know are imported."""
        for name in self.index.unknown():
            self._load(name)
        return {*self.index.listed(hook), *(part.name for part in self.parts_of(hook))}

    def section_names(self, *, default: bool = False) -> list[str]:
        """Return the sections of a recipe that plugins own; with `default` those that every stage has."""
        for name in self.index.unknown():
            self._load(name)
        listed = {name: about for name, (_, about) in self.index.listed("rlm_sections").items()}
        listed |= {part.name: part.summary for part in self.parts_of("rlm_sections")}
        blocked = self.blocked | disabled()
        of_blocked = {name for name, (plugin, _) in self.index.listed("rlm_sections").items() if plugin in blocked}
        chosen = [x for x, about in listed.items() if about.startswith("default|") or not default]
        return sorted(set(chosen) - of_blocked)  # never in the order in which the index was written

    def _names_of(self, plugin: str) -> dict[str, dict[str, str]]:
        names: dict[str, dict[str, str]] = {}
        for (hook, name), parts in self.parts.items():
            for part in (part for part in parts if part.plugin == plugin):
                names.setdefault(hook, {})[name] = part.summary
        return names

    def _reject_duplicate(self, duplicate: Plugin) -> None:
        plugin = self.plugins[duplicate.name]
        if duplicate.name == BUILTIN:
            duplicate.error = PluginError(f"the name '{BUILTIN}' is reserved", hint=f"uninstall {duplicate.origin}")
            self.plugins[duplicate.origin] = duplicate
            return
        self._pending.pop(duplicate.name, None)
        plugin.error = PluginError(
            f"two plugins have the name '{duplicate.name}': {plugin.origin} and {duplicate.origin}",
            hint="uninstall one of them",
        )

    def _add_file(self, path: Path) -> None:
        where = f"plugins.load: {path}"
        if not path.is_file():
            raise RecipeError("there is no such file", where=where, hint="the path is relative to the recipe")
        if path.stem in self.plugins:
            origin = self.plugins[path.stem].origin
            raise RecipeError(f"there is a plugin '{path.stem}' already: {origin}", where=where, hint="rename it")
        plugin, load = single_file(path)
        self._add(plugin, load)
        if isinstance(plugin.error, PluginError):
            raise plugin.error
        if plugin.error:
            problem = f"the file cannot be loaded: {type(plugin.error).__name__}: {plugin.error}"
            hint = "\n        ".join(filter(None, (line_of(plugin.error, path), plugin.hint)))
            raise PluginError(problem, where=where, hint=hint) from plugin.error

    def _add(self, plugin: Plugin, load: Callable[[], Any]) -> None:
        """Import a plugin and add its parts; an exception is stored with the plugin."""
        self.plugins[plugin.name] = plugin
        try:
            with contextlib.redirect_stdout(_ToStderr()), _restored_cwd(), time_limit(IMPORT_SECONDS):
                parts = self._parts_of(plugin.name, load())
            for part in parts:
                self.add(part)
        except CallTimeout as late:
            place = late.stack.rpartition("  File ")[2]
            plugin.error = ImportError(f"its import takes longer than {IMPORT_SECONDS:g} s: File {place}")
        except KeyboardInterrupt as error:
            if not is_of_call(error):
                raise
            plugin.error = ImportError("its import raised KeyboardInterrupt")
        except BaseException as error:  # a plugin may well call sys.exit
            plugin.error = error

    def _parts_of(self, name: str, module: Any) -> list[Part]:
        """Call every hook of a module once and return its parts; none of them if one is invalid."""
        hooks = hooks_of(name, module)
        earlier = self._manager.get_plugins()
        self._manager.register(module, f"{name}:{getattr(module, '__name__', id(module))}")
        parts: list[Part] = []
        for hook, file in hooks.items():
            for result in self._manager.subset_hook_caller(hook, earlier)() or [None]:
                targets = validated_parts(name, hook, file, result).items()
                parts += [Part(hook, part, name, target, hook_file=file) for part, target in targets]
        for part in parts:
            part.check()
        return parts

    def broken(self) -> list[Plugin]:
        """Import every plugin; return those that cannot be imported or break the contract of their hooks."""
        self.load_all()
        return [plugin for plugin in self.plugins.values() if plugin.error is not None]


def _trace(outcome: Any, hook: str, implementations: Sequence[Any], _arguments: Mapping[str, Any]) -> None:
    """Print one line per hook call, for ``RLM_TRACE=1``."""
    result = repr(outcome.exception) if outcome.exception else ", ".join(map(_names, outcome.get_result()))
    for implementation in implementations:
        sys.stderr.write(f"rlm: {implementation.plugin_name} {hook}() → {result}\n")


def _names(result: object) -> str:
    return ", ".join(map(str, result)) if isinstance(result, Mapping) else repr(result)


class _ToStderr(io.TextIOBase):
    """Stream that writes to stderr, as stdout may be JSON; closing it closes nothing else."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text) if sys.stderr is not None else len(text)


@contextlib.contextmanager
def _restored_cwd() -> Iterator[None]:
    """Restore the working directory after the block: paths in recipes and on the command line are relative to it."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was removed
        yield
        return
    try:
        yield
    finally:
        os.chdir(folder)
