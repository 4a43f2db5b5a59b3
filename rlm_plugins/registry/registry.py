"""The registry: every plugin is loaded, each of its hooks is called once, and a recipe finds parts by name."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pluggy

from rlm_plugins import __version__, builtin, hookspecs
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RecipeError, nearest
from rlm_plugins.registry.index import PluginIndex, disabled
from rlm_plugins.registry.loading import (
    Plugin,
    hooks_of,
    import_function,
    installed,
    line_of,
    required_version,
    single_file,
    validated_parts,
)
from rlm_plugins.registry.part import Part
from rlm_plugins.specs import base_name
from rlm_plugins.workers.time_limit import CallTimeout, is_of_call, time_limit

BUILTIN = "builtin"
"""Name of the built-in plugin, whose bare names are reserved."""
IN_MEMORY = "python"
"""Name of the plugin of functions, data sets and models that a Python call was given."""
PACKAGES = Path(__file__).with_name("packages.toml")
"""The parts of the packages of this project, installed or not; `make tables` writes it."""


@cache
def _packages() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(PACKAGES.read_text(encoding="utf-8"))


def package_of(hook: str, name: str) -> str:
    """Return the package of this project that offers a part; empty if none does.

    >>> package_of("rlm_advantages", "tracked_baseline"), package_of("rlm_advantages", "group_relative")
    ('rlm-algorithms', '')
    """
    plugin, _, bare = name.rpartition("/")
    offering = [p for p, parts in _packages().items() if bare in parts.get(HOOKS[hook].key, ())]
    return next((package for package in offering if plugin in ("", package.removeprefix("rlm-"))), "")


IMPORT_SECONDS = 120.0
"""Seconds that the import of one plugin and the calls of its hooks may take."""
_LOG = logging.getLogger(__name__)


class Registry:
    """The parts of all plugins: built-in, installed, or loaded by a recipe.

    An installed plugin is imported when one of its parts is looked up.

    Args:
        load: Python files to load as plugins, beside the installed ones.
        block: Names of installed plugins to leave out.

    Attributes:
        plugins: Name → plugin, broken ones included.
        parts: Hook and bare name → the parts of that name, of the plugins that were imported so far.
        blocked: Names of plugins that were left out.

    Raises:
        RecipeError: An unknown file or blocked plugin.
        PluginError: A file that cannot be loaded.
    """

    def __init__(self, load: Sequence[str | Path] = (), block: Collection[str] = ()) -> None:
        self.plugins: dict[str, Plugin] = {}
        self.parts: dict[tuple[str, str], list[Part]] = {}
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

    def add(self, part: Part) -> None:
        """Add a part under its hook and name."""
        self.parts.setdefault((part.hook, part.name), []).append(part)

    def find(self, hook: str, name: str, *, where: str = "") -> Part:
        """Return the part called `name`: ``plugin/name``, a bare name that is unique, or ``folder/file.py:name``."""
        if ".py:" in name and not self._matches(hook, name):
            self._add_function(hook, name, where)
        self.load_offering(hook, name)
        matches = self._matches(hook, name)
        if not matches:
            self.load_all()  # the index of names may be out of date
            matches = self._matches(hook, name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise RecipeError(
                f"several plugins offer a part '{name}'",
                where=where,
                allowed=", ".join(p.full_name for p in matches),
                hint="use the full name",
            )
        raise self._unknown(hook, name, where)

    def _add_function(self, hook: str, address: str, where: str) -> None:
        """Add the function or class at the address of a file as a part, whose plugin is the folder."""
        folder, _, name = address.rpartition("/")
        part = Part(hook, name, folder, import_function(address, where=where))
        part.check()
        self.plugins.setdefault(folder, Plugin(folder, "functions that the recipe names by their file"))
        self.add(part)

    def _matches(self, hook: str, name: str) -> list[Part]:
        """Return the parts that a name may mean; a built-in part alone where it is one of them."""
        plugin, _, bare = name.rpartition("/")
        matches = [p for p in self.parts.get((hook, bare), []) if plugin in ("", p.plugin)]
        return [p for p in matches if p.plugin == BUILTIN] or matches

    def _unknown(self, hook: str, name: str, where: str) -> RecipeError:
        plugin, _, bare = name.rpartition("/")
        names, conventions = self._candidates(hook, name)
        broken = [p for p in self.plugins.values() if p.error and plugin in ("", p.name)]
        elsewhere = [HOOKS[p.hook].key for p in self if p.name == bare and plugin in ("", p.plugin)]
        hints = [nearest(name, [*names, *([] if conventions else (p.full_name for p in self if p.hook == hook))])]
        hints += [f"'{name}' is a part for `{elsewhere[0]}`"] if elsewhere else []
        if hook == "rlm_environments":
            hints += ["your own data, or a data set of the hub: `{name: dataset, path: …}`"]
        hints += [f"variants of {name.partition('@')[2]}: {', '.join(conventions)}"] if conventions else []
        if plugin in self.blocked:
            hints += [f"the recipe blocks the plugin '{plugin}'"]
        elif plugin == IN_MEMORY:
            hints += ["an object of the Python process that trained: use the `Run` that `rlm.train` returned there"]
        elif name.endswith(".py"):
            hints += [f"name a function of the file: `{name}:FUNCTION`"]
        elif not plugin and "." in name:
            hints += [f"a function is named by its file: `./{name.replace('.', '.py:', 1)}`"]
        elif plugin and plugin not in self.plugins and not package_of(hook, name):
            hints += [f"unknown plugin '{plugin}': {nearest(plugin, self.plugins) or 'is it installed?'}"]
        for failed in broken:
            reason = f"{type(failed.error).__name__}: {failed.error}".splitlines()[0]
            hints.append(f"not loaded: {failed.name} ({reason}); {failed.hint or 'see `rlm explain plugins`'}")
        hints.append(self._installation(hook, name))
        error = RecipeError(
            f"unknown part '{name}' for `{HOOKS[hook].key}`",
            where=where,
            allowed=", ".join(names) or "nothing: no plugin offers one",
            hint="\n        ".join(filter(None, hints)),
        )
        error.__cause__ = broken[0].error if broken else None
        return error

    def _installation(self, hook: str, name: str) -> str:
        """Return the command that brings a part of a package that is not installed; empty if there is none."""
        package = package_of(hook, name)
        plugin = package.removeprefix("rlm-")
        if not package or plugin in self.plugins or plugin in self.blocked:
            return ""
        if plugin in disabled():
            return f"{package} is disabled: `rlm doctor --enable {plugin}`"
        return f"pip install {package}"

    def _candidates(self, hook: str, name: str) -> tuple[list[str], list[str]]:
        """Return the names to suggest for `name`; of a variant (``algorithm@library``) also those of its library."""
        names, (algorithm, _, library) = self.names(hook), name.partition("@")
        if not library:
            return [candidate for candidate in names if "@" not in candidate], []
        of_library = [candidate for candidate in names if candidate.endswith(f"@{library}")]
        of_algorithm = [candidate for candidate in names if base_name(candidate) == algorithm]
        return (of_algorithm, of_library) if of_algorithm else (of_library or names, [])

    def names(self, hook: str) -> list[str]:
        """Return every name that finds a part of `hook`, in its shortest form, built-in ones first."""
        parts = [(p, p.plugin == BUILTIN or len(self.parts[hook, p.name]) == 1) for p in self if p.hook == hook]
        return [p.name if is_bare else p.full_name for p, is_bare in parts]

    def parts_of(self, hook: str) -> list[Part]:
        """Return the parts of a hook, of the plugins that were imported so far."""
        return [part for (owner, _), parts in self.parts.items() for part in parts if owner == hook]

    def offers(self, hook: str, name: str) -> bool:
        """Return True if a plugin offers the part."""
        self.load_offering(hook, name)
        return bool(self._matches(hook, name))

    def __iter__(self) -> Iterator[Part]:
        """Yield all parts of all plugins, in the order of their hooks."""
        self.load_all()
        order = list(HOOKS)
        all_parts = [part for parts in self.parts.values() for part in parts]
        return iter(sorted(all_parts, key=lambda p: order.index(p.hook)))

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
        if (unmet := required_version(plugin.origin)) or (unmet := self.index.failure(name)):
            plugin.error = ImportError(unmet)
        else:
            self._add(plugin, load)
        if plugin.error is None:
            self.index.record(name, self._names_of(name))
            return
        reason = f"{type(plugin.error).__name__}: {plugin.error}".partition("\n")[0]
        _warn_of(name, reason)

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
            hint=f"uninstall one of them, or `rlm doctor --disable {duplicate.name}`",
        )

    def _add_file(self, path: Path) -> None:
        where = f"plugins.load: {path}"
        if not path.is_file():
            raise RecipeError("there is no such file", where=where, hint=f"a relative path begins at {Path.cwd()}")
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
            self.index.record_failure(plugin.name, f"its import took longer than {IMPORT_SECONDS:g} s: File {place}")
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
            if any(other.plugin == BUILTIN for other in self.parts.get((part.hook, part.name), ())):
                problem = f"'{part.name}' is the reserved name of a built-in part"
                raise PluginError(problem, where=part.where, hint="rename it")
        return parts

    def broken(self) -> list[Plugin]:
        """Import every plugin; return those that cannot be imported or break the contract of their hooks."""
        self.load_all()
        return [plugin for plugin in self.plugins.values() if plugin.error is not None]


@cache
def _warn_of(plugin: str, reason: str) -> None:
    """Say once per process that a plugin is left out, and how to do so for good."""
    hint = f"`rlm doctor --disable {plugin}` leaves it out without this line"
    _LOG.warning("the plugin '%s' is left out: %s\n  hint: %s", plugin, reason, hint)


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


def _restored_cwd() -> contextlib.AbstractContextManager[None]:
    """Return a context that restores the working directory: paths of recipes and commands are relative to it."""
    try:
        return contextlib.chdir(os.getcwd())
    except FileNotFoundError:  # it was removed
        return contextlib.nullcontext()
