"""Which parts there are, and which of them a name in a recipe means."""

from __future__ import annotations

from collections.abc import Iterator

from rlm_plugins import renamed
from rlm_plugins.algorithm import base_name
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.loading import Plugin
from rlm_plugins.registry.part import Part

BUILTIN = "builtin"
"""The plugin whose bare names nobody else can take."""


class Catalogue:
    """All parts of all plugins.

    Attributes:
        plugins: Name → plugin, broken ones included.
        parts: Hook and bare name → the parts of that name.
        blocked: Names of plugins that were left out.
    """

    def __init__(self) -> None:
        self.plugins: dict[str, Plugin] = {}
        self.parts: dict[tuple[str, str], list[Part]] = {}
        self.blocked: frozenset[str] = frozenset()

    def add(self, part: Part) -> None:
        """Files a part under its hook and name."""
        self.parts.setdefault((part.hook, part.name), []).append(part)

    def find(self, hook: str, name: str, *, where: str = "") -> Part:
        """The part a recipe means by `name`: ``plugin/name``, or bare where only one plugin offers it.

        Raises:
            RecipeError: Nobody offers it, or several do; with the error of a broken plugin as its cause.
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
        raise self._unknown(hook, name, where)

    def _unknown(self, hook: str, name: str, where: str) -> RecipeError:
        plugin, _, bare = name.rpartition("/")
        names, conventions = self._meant(hook, name)
        broken = [p for p in self.plugins.values() if p.error and plugin in ("", p.name)]
        elsewhere = [HOOKS[p.hook].key for p in self if p.name == bare and plugin in ("", p.plugin)]
        old = renamed.hint(renamed.PARTS, f"{HOOKS[hook].key}/{bare}")
        hints = [old or nearest(name, [*names, *([] if conventions else self._full(hook))])]
        hints += [f"'{name}' is a part for '{elsewhere[0]}'"] if elsewhere else []
        hints += [f"computed as {name.partition('@')[2]} does: {', '.join(conventions)}"] if conventions else []
        if plugin in self.blocked:
            hints += [f"the recipe blocks the plugin '{plugin}'"]
        elif plugin and plugin not in self.plugins:
            hints += [f"no plugin is called '{plugin}': {nearest(plugin, self.plugins) or 'is it installed here?'}"]
        for other in broken:
            reason = f"{type(other.error).__name__}: {other.error}".splitlines()[0]
            hints.append(f"not loaded: {other.name} ({reason}); {other.hint or 'see `rlm plugins`'}")
        error = RecipeError(
            f"no part for '{HOOKS[hook].key}' is called '{name}'",
            where=where,
            allowed=", ".join(names) or "nothing: no plugin offers one",
            hint="\n        ".join(filter(None, hints)),
        )
        error.__cause__ = broken[0].error if broken else None
        return error

    def _meant(self, hook: str, name: str) -> tuple[list[str], list[str]]:
        """The names that could stand where `name` does; of a row's convention also what its library has instead.

        A convention (``row@library``) of a row that exists is one of that row's.
        """
        names, (row, _, library) = self.names(hook), name.partition("@")
        if not library:
            return [other for other in names if "@" not in other], []
        same = [other for other in names if other.endswith(f"@{library}")]
        own = [other for other in names if base_name(other) == row]
        return (own, same) if own else (same or names, [])

    def _full(self, hook: str) -> list[str]:
        return [p.full_name for p in self if p.hook == hook]

    def names(self, hook: str) -> list[str]:
        """Every name that finds a part of `hook`, shortest form, built-ins first."""
        return [p.name if self._is_bare(p) else p.full_name for p in self if p.hook == hook]

    def _is_bare(self, part: Part) -> bool:
        return part.plugin == BUILTIN or len(self.parts[part.hook, part.name]) == 1

    def __iter__(self) -> Iterator[Part]:
        """All parts, in batch order of their hooks."""
        order = list(HOOKS)
        everything = [part for parts in self.parts.values() for part in parts]
        return iter(sorted(everything, key=lambda p: order.index(p.hook)))
