"""A recipe while it is loaded: its data, and the origin of each value."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.paths import Path, format_path, nodes


@dataclass
class Draft:
    """Plain data with the origin of every value.

    Args:
        data: The recipe.
        origins: Address → ``recipe.yaml line 12`` or ``command line``.
    """

    data: dict[str, Any]
    origins: dict[Path, str]

    def bodies(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return the top level and every stage that is a mapping."""
        stages = self.data.get("stages")
        numbered = enumerate(stages) if isinstance(stages, list) else ()
        return [((), self.data), *((("stages", i), stage) for i, stage in numbered if isinstance(stage, dict))]

    def copy(self, value: Any, source: Path, target: Path) -> Any:
        """Return a copy of `value` (at `source`) for the address `target`, with its origins."""
        for path, origin in list(self.origins.items()):
            if path[: len(source)] == source:
                self.origins.setdefault(target + path[len(source) :], origin)
        return copy.deepcopy(value)

    def mark(self, value: Any, path: Path, origin: str) -> None:
        """Record that `value`, with all it contains, comes from `origin`."""
        for old in [p for p in self.origins if p[: len(path)] == path]:
            del self.origins[old]
        self.origins.update((inner, origin) for inner, _ in nodes(value, path))

    def error(self, problem: str, path: Path, *, allowed: str = "", hint: str = "") -> RecipeError:
        """Return an error about the value at `path`, with its address and its line."""
        origin = next((self.origins[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.origins), "")
        address = format_path(path) or "the recipe"
        where = f"{address} ({origin})" if origin else address
        return RecipeError(problem, where=where, allowed=allowed, hint=hint)
