"""Parts of all plugins, and the lookup of a part by the name that a recipe gives."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rlm_plugins.algorithm import base_name
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.disabled import disabled
from rlm_plugins.registry.loading import Plugin
from rlm_plugins.registry.part import Part

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


class Catalog:
    """All parts of all plugins.

    Attributes:
        plugins: Name → plugin, broken ones included.
        parts: Hook and bare name → the parts of that name, of the plugins that were imported so far.
        blocked: Names of plugins that were left out.
    """

    def __init__(self) -> None:
        self.plugins: dict[str, Plugin] = {}
        self.parts: dict[tuple[str, str], list[Part]] = {}
        self.blocked: frozenset[str] = frozenset()

    def load_offering(self, hook: str, name: str) -> None:
        """Import the plugins that may offer a part."""

    def load_all(self) -> None:
        """Import all plugins."""

    def add(self, part: Part) -> None:
        """Add a part under its hook and name."""
        self.parts.setdefault((part.hook, part.name), []).append(part)

    def find(self, hook: str, name: str, *, where: str = "") -> Part:
        """Return the part called `name`: ``plugin/name``, or the bare name if only one plugin registers it.

        Raises:
            RecipeError: No plugin registers it, or several do; its cause is the error of a broken plugin.
        """
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
        hints = [nearest(name, [*names, *([] if conventions else self._full(hook))])]
        hints += [f"'{name}' is a part for `{elsewhere[0]}`"] if elsewhere else []
        if hook == "rlm_environments":
            hints += ["your own data, or a data set of the hub: `{name: dataset, path: …}`"]
        hints += [f"variants of {name.partition('@')[2]}: {', '.join(conventions)}"] if conventions else []
        if plugin in self.blocked:
            hints += [f"the recipe blocks the plugin '{plugin}'"]
        elif plugin == IN_MEMORY:
            hints += ["an object of the Python process that trained: use the `Run` that `rlm.train` returned there"]
        elif plugin and plugin not in self.plugins and not package_of(hook, name):
            hints += [f"unknown plugin '{plugin}': {nearest(plugin, self.plugins) or 'is it installed?'}"]
        for failed in broken:
            reason = f"{type(failed.error).__name__}: {failed.error}".splitlines()[0]
            hints.append(f"not loaded: {failed.name} ({reason}); {failed.hint or 'see `rlm plugins`'}")
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
            return f"{package} is disabled: `rlm plugins --enable {plugin}`"
        return f"pip install {package}"

    def _candidates(self, hook: str, name: str) -> tuple[list[str], list[str]]:
        """Return the valid names to suggest for `name`; for an implementation variant also those of its library.

        A variant (``algorithm@library``) of an existing algorithm is one of that algorithm.
        """
        names, (algorithm, _, library) = self.names(hook), name.partition("@")
        if not library:
            return [candidate for candidate in names if "@" not in candidate], []
        of_library = [candidate for candidate in names if candidate.endswith(f"@{library}")]
        of_algorithm = [candidate for candidate in names if base_name(candidate) == algorithm]
        return (of_algorithm, of_library) if of_algorithm else (of_library or names, [])

    def _full(self, hook: str) -> list[str]:
        return [p.full_name for p in self if p.hook == hook]

    def names(self, hook: str) -> list[str]:
        """Return every name that finds a part of `hook`, in its shortest form, built-in ones first."""
        return [p.name if self._is_bare(p) else p.full_name for p in self if p.hook == hook]

    def _is_bare(self, part: Part) -> bool:
        return part.plugin == BUILTIN or len(self.parts[part.hook, part.name]) == 1

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
