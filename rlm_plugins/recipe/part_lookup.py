"""Lookup of the parts that one stage of a recipe names, and the origin of every value."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pydantic_core

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import Schedule, as_recipe_value, read
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.document import COMMAND_LINE, Recipe
from rlm_plugins.recipe.paths import PATH_KNOBS, Path, absolute_path, format_path, leaves
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import PinsKnobs
from rlm_plugins.registry.registry import BUILTIN

ORDERED = (
    ("low", "high"),
    ("lowest", "highest"),
    ("minimum", "maximum"),
    ("min_decay", "max_decay"),
    ("min_digits", "digits"),
    ("min_carries", "max_carries"),
)
"""Pairs of knobs of one part of which the first is not larger than the second."""
HOOK_OF = {hook.key: name for name, hook in HOOKS.items()}
"""Recipe key → hook."""
FOLDER_KNOB = "image_folder"
"""Name of the knob that holds a folder, by default that of the recipe."""


def absolute_knobs(
    knobs: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path], declared: Container[str] = ()
) -> dict[str, Any]:
    """Return the knobs of a part with the paths absolute."""
    paths = {name: knobs[name] for name in PATH_KNOBS if isinstance(knobs.get(name), str)}
    absolute = {name: absolute_path(value, folder_of(name)) for name, value in paths.items()}
    if FOLDER_KNOB in declared:
        folder = pathlib.Path(knobs.get(FOLDER_KNOB) or ".").expanduser()
        absolute[FOLDER_KNOB] = str((folder_of(FOLDER_KNOB) / folder).resolve())
    return {**knobs, **absolute}


def absolute_settings(settings: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path]) -> dict[str, Any]:
    """Return trainer settings in which paths that start with ``./`` or ``../`` are absolute (`deepspeed`, …)."""
    paths = {
        name: absolute_path(value, folder_of(name))
        for name, value in settings.items()
        if isinstance(value, str) and value.startswith(("./", "../"))
    }
    return {**settings, **paths}


@dataclass(frozen=True)
class Finder:
    """Lookup of the parts of stage `number`, from 0, to which all addresses are relative. It completes the origins."""

    recipe: Recipe
    registry: Registry
    number: int

    @property
    def stage_path(self) -> Path:
        """Path of the stage in the recipe; empty in a recipe of one stage."""
        return self.recipe.stage_paths[self.number]

    @property
    def stage_dict(self) -> Mapping[str, Any]:
        """The sections of the stage as they were read."""
        return self.recipe.bodies[self.number]

    def optional_part(
        self, key: str, spec: Mapping[str, Any] | None, steps: Path
    ) -> tuple[Bound | None, dict[str, Any] | None]:
        """Return the part at `steps` and its plain data, or (None, None) without one."""
        return (None, None) if spec is None else self.part(key, spec, steps)

    def part_list(self, section: str) -> tuple[list[Bound], list[dict[str, Any]]]:
        """Return the parts of a section that lists them, and their plain data."""
        return self.parts(section, self.stage_dict.get(section) or [], (section,))

    def parts(self, key: str, specs: Sequence[Any], steps: Path) -> tuple[list[Bound], list[dict[str, Any]]]:
        """Return the parts of a list, and their plain data."""
        parts = [self.part(key, spec, (*steps, i)) for i, spec in enumerate(specs)]
        return [bound for bound, _ in parts], [resolved for _, resolved in parts]

    def part(self, key: str, spec: Mapping[str, Any], steps: Path) -> tuple[Bound, dict[str, Any]]:
        """Return the part of `spec` (``{name: …, knobs…}``) bound to its knobs, and its plain data with every knob."""
        where = self.address(*steps)
        part = self.registry.find(HOOK_OF[key], spec["name"], where=where)
        options = {name: spec[name] for name in HOOKS[part.hook].options if spec.get(name) is not None}
        if key == "penalties":
            options["beta"] = coefficient(options.get("beta"), where)
        if "aggregator" in options:
            aggregator = options["aggregator"]
            aggregator_spec = aggregator if isinstance(aggregator, Mapping) else {"name": aggregator}
            options["aggregator"], _ = self.part("aggregator", aggregator_spec, (*steps, "aggregator"))
        given_knobs = {name: value for name, value in spec.items() if name not in ("name", *HOOKS[part.hook].options)}
        knobs = absolute_knobs(given_knobs, lambda knob: self.folder(*steps, knob), part.knobs.model_fields)
        try:
            bound = replace(part.bind(knobs, where=where), options=options)
        except RecipeError as error:
            if error.where in part.knobs.model_fields:  # the part names its knob, not its place in the recipe
                raise error.at(f"{where}.{error.where}") from error.__cause__
            raise self._with_knob_hint(error, part, knobs) from error.__cause__
        for first, second in ORDERED:
            low, high = bound.knobs.get(first), bound.knobs.get(second)
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                problem = f"expected `{first}` not larger than `{second}`, got {low} and {high}"
                raise RecipeError(problem, where=f"{where}.{first}")
        resolved_knobs = {name: as_recipe_value(value) for name, value in bound.knobs.items()}
        resolved_options = {name: _resolved_option(value) for name, value in options.items()}
        resolved = {
            "name": stable_name(part),
            **resolved_options,
            **pydantic_core.to_jsonable_python(resolved_knobs, fallback=repr),
        }
        self.record_origin(resolved, steps, f"default of {part.name}")
        return bound, resolved

    def _with_knob_hint(self, error: RecipeError, part: Part, knobs: Mapping[str, Any]) -> RecipeError:
        """Return an error about an unknown knob with a hint: the parts that have this knob."""
        unknown = next((knob for knob in knobs if error.where.endswith(f".{knob}")), "")
        parts_with_knob = [p.name for p in self.registry if p.hook == part.hook and unknown in p.knobs.model_fields]
        if error.hint or unknown in part.knobs.model_fields or not parts_with_knob:
            return error
        hint = f"'{unknown}' is a knob of {', '.join(parts_with_knob)}"
        return RecipeError(error.problem, where=error.where, allowed=error.allowed, hint=hint)

    # -- addresses and origins

    def address(self, *steps: str | int) -> str:
        """Return the address of a value of this stage, from the top of the recipe."""
        return format_path((*self.stage_path, *steps))

    def folder(self, *steps: str | int) -> pathlib.Path:
        """Return the folder to which a path is relative: that of the recipe, or the current one on the command line."""
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


def _resolved_option(value: Any) -> Any:
    """Return the value of an option as plain data; of a part, its name and knobs if it has any."""
    if not isinstance(value, Bound):
        return as_recipe_value(value)
    name = stable_name(value.part)
    return {"name": name, **value.knobs} if value.knobs else name


def stable_name(part: Part) -> str:
    """Return the name that finds `part` whatever else is installed: bare for built-in parts, full for others."""
    return part.name if part.plugin == BUILTIN else part.full_name


def coefficient(beta: Any, where: str) -> float | Schedule:
    """Return the ``beta`` of the penalty at `where`, or its schedule."""
    if isinstance(beta, Mapping):
        return read(beta, f"{where}.beta")
    if isinstance(beta, bool) or not isinstance(beta, int | float):
        raise RecipeError(
            "the key 'beta' is missing", where=f"{where}.beta", allowed="a number: the penalty's coefficient"
        )
    return float(beta)


FILES = (".gguf",)
"""Suffixes of model files."""


def resolve_model_name(spec: Mapping[str, Any], registry: Registry, folder: pathlib.Path, where: str) -> dict[str, Any]:
    """Return the section `model` with the name of a part, and what that part pins.

    A name without a part is short for ``{name: pretrained, path: …}`` if it is a folder or has a slash, and for
    ``{name: gguf, path: model.gguf}`` if it is a file.
    """
    name = spec["name"]
    try:
        part = registry.find("rlm_models", name, where=where)
    except RecipeError as error:
        path = _checkpoint(name, registry, folder, where)
        if path is None:
            hint = f"{error.hint} ".lstrip() + f"a hub name without a slash: `{{name: pretrained, path: {name}}}`"
            raise RecipeError(error.problem, where=where, allowed=error.allowed, hint=hint) from error.__cause__
        part = registry.find("rlm_models", part_of(path), where=where)
        spec = {**spec, "name": part.name, "path": path}
    return dict(part.target.pin(dict(spec)) if isinstance(part.target, PinsKnobs) else spec)


def part_of(path: str) -> str:
    """Return the name of the model part that reads a checkpoint: the suffix of a file, else `pretrained`.

    >>> part_of("./weights.gguf"), part_of("Qwen/Qwen3-0.6B")
    ('gguf', 'pretrained')
    """
    return pathlib.Path(path).suffix[1:] if path.endswith(FILES) else "pretrained"


def _checkpoint(name: str, registry: Registry, folder: pathlib.Path, where: str) -> str | None:
    for path in (folder / name, pathlib.Path(name)):
        if path.is_dir() or (path.is_file() and path.suffix in FILES):
            return str(path.resolve())
    if name.startswith((".", "/", "~")) or name.endswith(FILES):
        allowed = "a folder written by `save_pretrained`, or a .gguf file"
        raise RecipeError(f"there is no folder or file '{name}'", where=where, allowed=allowed)
    plugin, slash, _ = name.partition("/")
    return name if slash and plugin not in registry.plugins else None
