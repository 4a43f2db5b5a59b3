"""Finds the parts that one stage of a recipe names, and keeps the book of where every value came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pydantic_core

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import Path, leaves, spell
from rlm_plugins.registry import Registry
from rlm_plugins.registry.catalog import BUILTIN
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.schedule import Schedule

HOOK_OF = {hook.key: name for name, hook in HOOKS.items()}
"""Recipe key → hook."""


@dataclass(frozen=True)
class Finder:
    """Looks parts up for the stage at `place`.

    Args:
        recipe: Its `origins` are completed with what parts decide by default.
        registry: Who offers what.
        place: Address of the stage; all other addresses are relative to it.
    """

    recipe: Recipe
    registry: Registry
    place: Path

    def one(self, key: str, spec: Mapping[str, Any] | None, steps: Path) -> tuple[Bound | None, dict[str, Any] | None]:
        """The part at `steps`, and the same as plain data; nothing where nothing is named."""
        return (None, None) if spec is None else self.part(key, spec, steps)

    def several(self, key: str, specs: Sequence[Any], steps: Path) -> tuple[list[Bound], list[dict[str, Any]]]:
        """The parts of a list, and the same as plain data."""
        found = [self.part(key, spec, (*steps, i)) for i, spec in enumerate(specs)]
        return [bound for bound, _ in found], [plain for _, plain in found]

    def part(self, key: str, spec: Mapping[str, Any], steps: Path) -> tuple[Bound, dict[str, Any]]:
        """A part with its knobs turned, and the same as plain data with every knob said.

        Args:
            key: The recipe key of its hook.
            spec: ``{name: …, knobs…}``.
            steps: Where it stands in the stage.

        Raises:
            RecipeError: Nobody offers it, a wrong knob, or a penalty without its coefficient.
        """
        where = self.address(*steps)
        found = self.registry.find(HOOK_OF[key], spec["name"], where=where)
        beside = {name: spec[name] for name in HOOKS[found.hook].keys if spec.get(name) is not None}
        if key == "penalties":
            beside["beta"] = coefficient(beside.get("beta"), where)
        knobs = {name: value for name, value in spec.items() if name not in ("name", *HOOKS[found.hook].keys)}
        try:
            bound = replace(found.bind(knobs, where=where), beside=beside)
        except RecipeError as error:
            raise self._with_owner(error, found, knobs) from error.__cause__
        turned = {name: schedule.plain(value) for name, value in bound.knobs.items()}
        aside = {name: schedule.plain(value) for name, value in beside.items()}
        plain = {"name": stable_name(found), **aside, **pydantic_core.to_jsonable_python(turned, fallback=repr)}
        self.note(plain, steps, f"default of {found.name}")
        return bound, plain

    def _with_owner(self, error: RecipeError, part: Part, knobs: Mapping[str, Any]) -> RecipeError:
        """An error about a knob that `part` does not have says which parts in its place would have it."""
        unknown = next((knob for knob in knobs if error.where.endswith(f".{knob}")), "")
        others = [p.name for p in self.registry if p.hook == part.hook and unknown in p.knobs.model_fields]
        if error.hint or unknown in part.knobs.model_fields or not others:
            return error
        hint = f"'{unknown}' is a knob of {', '.join(others)}"
        return RecipeError(error.problem, where=error.where, allowed=error.allowed, hint=hint)

    def same(self, key: str, one: str, other: str, steps: Path) -> bool:
        """Whether two names find the same part."""
        first, second = (self.registry.find(HOOK_OF[key], name, where=self.address(*steps)) for name in (one, other))
        return first == second

    # -- addresses and origins

    def address(self, *steps: str | int) -> str:
        """The address of something in this stage, from the top of the recipe."""
        return spell((*self.place, *steps))

    def note(self, value: Any, steps: Path, origin: str) -> None:
        """Everything in `value` that has no origin yet came from `origin`."""
        for path, _ in leaves(value, steps):
            self.recipe.origins.setdefault(self.address(*path), origin)

    def move(self, old: Path, new: Path) -> None:
        """What the recipe said at `old` is known as `new` from now on."""
        before, after = self.address(*old), self.address(*new)
        for address, origin in list(self.recipe.origins.items()):
            if address == before or address.startswith(f"{before}."):
                self.recipe.origins[after + address[len(before) :]] = origin


def stable_name(part: Part) -> str:
    """The name that finds `part` whatever else is installed: bare for built-ins, full for guests."""
    return part.name if part.plugin == BUILTIN else part.full_name


def coefficient(beta: Any, where: str) -> float | Schedule:
    """The ``beta`` of the penalty at `where`, or its schedule.

    Raises:
        RecipeError: It is neither.
    """
    if isinstance(beta, Mapping):
        return schedule.read(beta, f"{where}.beta")
    if isinstance(beta, bool) or not isinstance(beta, int | float):
        raise RecipeError(
            "the key 'beta' is missing", where=f"{where}.beta", allowed="a number: the penalty's coefficient"
        )
    return float(beta)
