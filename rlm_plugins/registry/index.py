"""Index of the parts of installed plugins: a plugin is imported only if a recipe or a command names one of its parts.

The index is a file of the user's cache. An entry holds for one version of a plugin's files. It is a hint, never the
truth: a name that it does not find imports every plugin.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from rlm_plugins.durable.cache import cache_folder
from rlm_plugins.durable.files import write_file
from rlm_plugins.entry_points import origin_of
from rlm_plugins.errors import RlmError

FILE = "plugins.json"
UNKNOWN = "unknown files"
Names = dict[str, dict[str, str]]
"""Hook → name of a part → the first line of its docstring."""


class PluginIndex:
    """Names of the parts of installed plugins, without importing them.

    Attributes:
        names: Plugin → its names, of each plugin whose files are those of its entry.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        """Read the index.

        Args:
            modules: Name of each plugin → origin and module of its entry point.
        """
        self._keys = {plugin: f"{plugin} {module} {_fingerprint(module)}" for plugin, module in modules.items()}
        entries = _read()
        self.names: dict[str, Names] = {p: entries[key] for p, key in self._keys.items() if key in entries}

    def offering(self, hook: str, name: str) -> list[str]:
        """Return the plugins that may offer a part: by their entry, or since they have none."""
        return [p for p in self._keys if p not in self.names or name in self.names[p].get(hook, ())]

    def listed(self, hook: str) -> dict[str, tuple[str, str]]:
        """Return name of each part of a hook → its plugin, and the first line of its docstring."""
        listed = {}
        for plugin, names in self.names.items():
            listed.update({name: (plugin, about) for name, about in names.get(hook, {}).items()})
        return listed

    def unknown(self) -> list[str]:
        """Return the plugins without an entry."""
        return [plugin for plugin in self._keys if plugin not in self.names]

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
    """Return a text that changes with the files of a package: number of its Python files, and the time of the newest.

    Args:
        module: ``origin module`` or ``origin module:object``.
    """
    top = module.rpartition(" ")[2].partition(":")[0].partition(".")[0]
    with contextlib.suppress(Exception):
        spec = importlib.util.find_spec(top)
        folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
        files = [file for folder in folders for file in folder.rglob("*.py")]
        files = files or [Path(spec.origin)] if spec is not None and spec.origin else files
        return f"{files[0].parent} {len(files)} {max(file.stat().st_mtime_ns for file in files)}"
    return UNKNOWN
