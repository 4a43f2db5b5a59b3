"""Lookup of the parts that one stage of a recipe names, and the origin of every value."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pydantic_core

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.local_paths import absolute_knobs
from rlm_plugins.recipe.overrides import COMMAND_LINE
from rlm_plugins.recipe.paths import Path, leaves, spell
from rlm_plugins.registry import Registry
from rlm_plugins.registry.catalog import BUILTIN
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.schedule import Schedule

HOOK_OF = {hook.key: name for name, hook in HOOKS.items()}
"""Recipe key → hook."""


@dataclass(frozen=True)
class Finder:
    """Lookup of parts for the stage at `place`.

    Args:
        recipe: Its `origins` are completed with the defaults of parts.
        registry: The parts.
        place: Address of the stage; all other addresses are relative to it.
    """

    recipe: Recipe
    registry: Registry
    place: Path

    def one(self, key: str, spec: Mapping[str, Any] | None, steps: Path) -> tuple[Bound | None, dict[str, Any] | None]:
        """Return the part at `steps`, and the same as plain data; None twice if none is named."""
        return (None, None) if spec is None else self.part(key, spec, steps)

    def several(self, key: str, specs: Sequence[Any], steps: Path) -> tuple[list[Bound], list[dict[str, Any]]]:
        """Return the parts of a list, and the same as plain data."""
        parts = [self.part(key, spec, (*steps, i)) for i, spec in enumerate(specs)]
        return [bound for bound, _ in parts], [plain for _, plain in parts]

    def part(self, key: str, spec: Mapping[str, Any], steps: Path) -> tuple[Bound, dict[str, Any]]:
        """Return a part with its knobs, and the same as plain data with every knob.

        Args:
            key: The recipe key of its hook.
            spec: ``{name: …, knobs…}``.
            steps: Its address in the stage.

        Raises:
            RecipeError: An unknown part, a wrong knob, or a penalty without its coefficient.
        """
        where = self.address(*steps)
        part = self.registry.find(HOOK_OF[key], spec["name"], where=where)
        beside = {name: spec[name] for name in HOOKS[part.hook].keys if spec.get(name) is not None}
        if key == "penalties":
            beside["beta"] = coefficient(beside.get("beta"), where)
        if "aggregator" in beside:
            own = beside["aggregator"]
            spec_of_own = own if isinstance(own, Mapping) else {"name": own}
            beside["aggregator"], _ = self.part("aggregator", spec_of_own, (*steps, "aggregator"))
        given_knobs = {name: value for name, value in spec.items() if name not in ("name", *HOOKS[part.hook].keys)}
        knobs = absolute_knobs(given_knobs, lambda knob: self.folder(*steps, knob), part.knobs.model_fields)
        try:
            bound = replace(part.bind(knobs, where=where), beside=beside)
        except RecipeError as error:
            raise self._with_owner(error, part, knobs) from error.__cause__
        plain_knobs = {name: schedule.plain(value) for name, value in bound.knobs.items()}
        aside = {name: _plain(value) for name, value in beside.items()}
        plain = {"name": stable_name(part), **aside, **pydantic_core.to_jsonable_python(plain_knobs, fallback=repr)}
        self.record_origin(plain, steps, f"default of {part.name}")
        return bound, plain

    def _with_owner(self, error: RecipeError, part: Part, knobs: Mapping[str, Any]) -> RecipeError:
        """Return an error about an unknown knob with the parts that would have it."""
        unknown = next((knob for knob in knobs if error.where.endswith(f".{knob}")), "")
        others = [p.name for p in self.registry if p.hook == part.hook and unknown in p.knobs.model_fields]
        if error.hint or unknown in part.knobs.model_fields or not others:
            return error
        hint = f"'{unknown}' is a knob of {', '.join(others)}"
        return RecipeError(error.problem, where=error.where, allowed=error.allowed, hint=hint)

    def same(self, key: str, one: str, other: str, steps: Path) -> bool:
        """Return True if two names find the same part."""
        first, second = (self.registry.find(HOOK_OF[key], name, where=self.address(*steps)) for name in (one, other))
        return first == second

    # -- addresses and origins

    def address(self, *steps: str | int) -> str:
        """Return the address of something in this stage, from the top of the recipe."""
        return spell((*self.place, *steps))

    def folder(self, *steps: str | int) -> pathlib.Path:
        """Return the folder to which a path is relative: that of the recipe, or on the command line the current one."""
        origin = self.recipe.origins.get(self.address(*steps))
        return pathlib.Path() if origin == COMMAND_LINE else self.recipe.path.parent

    def record_origin(self, value: Any, steps: Path, origin: str) -> None:
        """Record the origin of everything in `value` that has none yet."""
        for path, _ in leaves(value, steps):
            self.recipe.origins.setdefault(self.address(*path), origin)

    def move(self, old: Path, new: Path) -> None:
        """Record the origins of `old` for `new`."""
        before, after = self.address(*old), self.address(*new)
        for address, origin in list(self.recipe.origins.items()):
            if address == before or address.startswith(f"{before}."):
                self.recipe.origins[after + address[len(before) :]] = origin


def _plain(value: Any) -> Any:
    """Return the value of a key beside the knobs as plain data; of a part, its name and knobs if it has any."""
    if not isinstance(value, Bound):
        return schedule.plain(value)
    name = stable_name(value.part)
    return {"name": name, **value.knobs} if value.knobs else name


def stable_name(part: Part) -> str:
    """Return the name that finds `part` whatever else is installed: bare for built-in parts, full for others."""
    return part.name if part.plugin == BUILTIN else part.full_name


def coefficient(beta: Any, where: str) -> float | Schedule:
    """Return the ``beta`` of the penalty at `where`, or its schedule.

    Raises:
        RecipeError: It is missing.
    """
    if isinstance(beta, Mapping):
        return schedule.read(beta, f"{where}.beta")
    if isinstance(beta, bool) or not isinstance(beta, int | float):
        raise RecipeError(
            "the key 'beta' is missing", where=f"{where}.beta", allowed="a number: the penalty's coefficient"
        )
    return float(beta)
