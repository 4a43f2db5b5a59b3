"""Installed plugins, without their import: entry points, the index of their parts, and those that a user disabled.

The index is a file of the user's cache. An entry holds for one version of a plugin's files. It is a hint, never the
truth: a name that it does not find imports every plugin.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Mapping
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import make_folder, write_file
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RlmError


def disabled_file() -> Path:
    """Return ``rlm-plugins/disabled.json`` in the configuration folder."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "rlm-plugins" / "disabled.json"


def disabled() -> frozenset[str]:
    """Return the names; none if the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        names = json.loads(disabled_file().read_text(encoding="utf-8"))
        return frozenset(name for name in names if isinstance(name, str))
    return frozenset()


def set_disabled(name: str, *, disable: bool) -> None:
    """Add a name, or remove it and what the index has of it."""
    if not disable:
        entries = {key: entry for key, entry in _read().items() if key.split(" ")[0] != name}
        with contextlib.suppress(RlmError):
            write_file(cache_folder() / FILE, json.dumps(entries, ensure_ascii=False, indent=0) + "\n")
    names = disabled() | {name} if disable else disabled() - {name}
    file = disabled_file()
    make_folder(file.parent)
    write_file(file, json.dumps(sorted(names)) + "\n")


DAMAGED: dict[str, str] = {}
"""Distribution and version → the problem of its ``entry_points.txt``; filled as distributions are read."""


def origin_of(distribution: Distribution | None) -> str:
    """Return name and version of a distribution; its path if its metadata cannot be read, empty if there is none."""
    if distribution is None:
        return ""
    try:
        return f"{distribution.name} {distribution.version}"
    except Exception:
        return str(getattr(distribution, "_path", distribution))


def tolerate_damage() -> None:
    """Patch importlib.metadata, which raises for all distributions if one has a damaged ``entry_points.txt``."""
    original = Distribution.entry_points
    if not isinstance(original, property) or original.fget is _entry_points:
        return
    global _read_entry_points
    _read_entry_points = original
    Distribution.entry_points = property(_entry_points)  # type: ignore[assignment, method-assign]


def _entry_points(distribution: Distribution) -> EntryPoints:
    try:
        assert _read_entry_points.fget is not None
        points: EntryPoints = _read_entry_points.fget(distribution)
    except Exception as error:
        origin = origin_of(distribution)
        DAMAGED[origin] = f"entry_points.txt of {origin} cannot be read: {type(error).__name__}: {error}"
        return EntryPoints(())
    return points


_read_entry_points: property = importlib.metadata.Distribution.entry_points  # type: ignore[assignment]


FILE = "plugins.json"
UNKNOWN = "unknown files"
_FAILURE = "failure"
"""Key beside the hooks of an entry: the import of the plugin hung."""
Names = dict[str, dict[str, str]]
"""Hook → name of a part → the first line of its docstring."""


class PluginIndex:
    """Names of the parts of installed plugins without importing them; `names` has those whose files are unchanged."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        """Read the index; `modules` maps the name of each plugin to origin and module of its entry point."""
        self._keys = {plugin: f"{plugin} {module} {_fingerprint(module)}" for plugin, module in modules.items()}
        entries = _read()
        self.names: dict[str, Names] = {p: entries[key] for p, key in self._keys.items() if key in entries}

    def offering(self, hook: str, name: str) -> list[str]:
        """Return the plugins that may offer a part: by their entry, or since they have none."""
        return [p for p in self._keys if p not in self.names or name in self.names[p].get(hook, ())]

    def failure(self, plugin: str) -> str:
        """Return why the import of a plugin is not tried again; empty if it is."""
        reason = self.names.get(plugin, {}).get(_FAILURE, {}).get("import", "")
        return reason and f"{reason}; `rlm doctor --enable {plugin}` tries it again"

    def record_failure(self, plugin: str, reason: str) -> None:
        """Store why the import of an installed plugin is not tried again: it would take minutes in every command."""
        if plugin in self._keys:
            self.record(plugin, {_FAILURE: {"import": reason}})

    def listed(self, hook: str) -> dict[str, tuple[str, str]]:
        """Return name of each part of a hook → its plugin, and the first line of its docstring."""
        listed = {}
        for plugin, names in self.names.items():
            listed.update({name: (plugin, about) for name, about in names.get(hook, {}).items()})
        return listed

    def unknown(self) -> list[str]:
        """Return the plugins without an entry."""
        return [plugin for plugin in self._keys if plugin not in self.names]

    @property
    def plugins(self) -> list[str]:
        """The names of all plugins."""
        return list(self._keys)

    def state(self) -> list[str] | None:
        """Return texts that change with the files of this package and of all plugins; None if some are unknown."""
        texts = [_fingerprint("rlm-plugins rlm_plugins"), *self._keys.values()]
        return None if any(text.endswith(UNKNOWN) for text in texts) else texts

    def record(self, plugin: str, names: Names) -> None:
        """Store the names of a plugin that was imported."""
        if self._keys[plugin].endswith(UNKNOWN) or self.names.get(plugin) == names:
            return
        self.names[plugin] = names
        entries = _read()
        current = self._keys[plugin]
        kept = {key: entry for key, entry in entries.items() if key.split(" ")[0] != plugin}
        with contextlib.suppress(OSError, RlmError):  # without a cache every command imports every plugin
            cache_folder().mkdir(parents=True, exist_ok=True)
            write_file(cache_folder() / FILE, json.dumps({**kept, current: names}, ensure_ascii=False, indent=0) + "\n")


def module_of(point: EntryPoint) -> str:
    """Return origin and module of an entry point, the key of its plugin in the index."""
    return f"{origin_of(point.dist)} {point.value}"


def _read() -> dict[str, Names]:
    try:
        entries = json.loads((cache_folder() / FILE).read_text(encoding="utf-8"))
        return {str(key): _checked(entry) for key, entry in entries.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _checked(entry: Any) -> Names:
    return {str(hook): {str(name): str(about) for name, about in names.items()} for hook, names in entry.items()}


def _fingerprint(module: str) -> str:
    """Return a text that changes with the Python files of a package: their number, and the time of the newest."""
    top = module.rpartition(" ")[2].partition(":")[0].partition(".")[0]
    with contextlib.suppress(Exception):
        spec = importlib.util.find_spec(top)
        folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
        files = [file for folder in folders for file in folder.rglob("*.py")]
        files = files or [Path(spec.origin)] if spec is not None and spec.origin else files
        return f"{files[0].parent} {len(files)} {max(file.stat().st_mtime_ns for file in files)}"
    return UNKNOWN
