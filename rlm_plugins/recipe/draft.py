"""A recipe while it is loaded: origin of each value, short names, inheritance by stages, and overrides."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from rlm_plugins.errors import RecipeError, describe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.paths import Path, format_path, nodes, parse_path, position
from rlm_plugins.recipe.sections import KEYS, MANY, SECTIONS
from rlm_plugins.specs import SLOTS


@dataclass
class Draft:
    """Plain data, and address → origin of every value: ``recipe.yaml line 12`` or ``command line``."""

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


def expand(draft: Draft) -> tuple[list[dict[str, Any]], list[Path]]:
    """Return one complete body per stage, and its address: () if the top level is the only stage."""
    if draft.data.get("stages") is None:
        return [{key: value for key, value in draft.data.items() if key in SECTIONS or key not in KEYS}], [()]
    stages = {stage_path: body for stage_path, body in draft.bodies() if stage_path}
    return [_complete(draft, stage_path, body) for stage_path, body in stages.items()], list(stages)


def _complete(draft: Draft, stage_path: Path, stage: dict[str, Any]) -> dict[str, Any]:
    body = {"name": stage.get("name")}
    _refuse_second_start(draft, stage_path, stage.get("model"))
    extensions = [key for key in (*draft.data, *stage) if key not in KEYS]
    for section in (*SECTIONS, *dict.fromkeys(extensions)):
        if section == "trainer":
            body[section] = _trainer(draft, stage_path, stage)
        elif section in stage:
            body[section] = stage[section]
        elif section in draft.data:
            body[section] = inherited(draft, stage_path, section)
    return body


def inherited(draft: Draft, stage_path: Path, section: str) -> Any:
    """Return a copy of the section that a stage inherits, if any; of `model:` a later one inherits the adapter."""
    is_inherited = len(stage_path) == 2 and (section in SECTIONS or section not in KEYS)
    is_inherited = is_inherited and section != "trainer"
    value = draft.data.get(section) if is_inherited else None
    if isinstance(value, dict) and section == "model" and stage_path[1] != 0:
        value = {key: x for key, x in value.items() if key == "lora"}
    return None if value is None else draft.copy(value, (section,), (*stage_path, section))


def _trainer(draft: Draft, stage_path: Path, stage: dict[str, Any]) -> dict[str, Any]:
    settings, shared = stage.get("trainer") or {}, draft.data.get("trainer") or {}
    inherited_settings = {
        key: draft.copy(value, ("trainer", key), (*stage_path, "trainer", key))
        for key, value in shared.items()
        if key not in settings
    }
    return {**inherited_settings, **settings}


def _refuse_second_start(draft: Draft, stage_path: Path, model: dict[str, Any] | None) -> None:
    if stage_path[1] != 0 and (extra := [key for key in model or {} if key != "lora"]):
        raise draft.error(
            f"unknown key '{extra[0]}': a later stage starts from the model of the stage before",
            (*stage_path, "model", extra[0]),
            allowed="lora",
            hint="leave it out, or make it a recipe of its own",
        )


_PART_SECTIONS = ("model", "environment", "rewards", "algorithm", "generator", "engine", "callbacks", "observers")


def expand_names(draft: Draft) -> None:
    """Replace every bare name by a mapping (``addition`` → ``{name: addition}``) and ``none`` by null, in place."""
    for path, body in draft.bodies():
        _expand_names(draft, body, path, _PART_SECTIONS)
        if isinstance(section := body.get("algorithm"), dict):
            _expand_names(draft, section, (*path, "algorithm"), SLOTS)


def _expand_names(draft: Draft, section: dict[str, Any], path: Path, keys: tuple[str, ...]) -> None:
    for key in keys:
        value, address = section.get(key), (*path, key)
        if value == "none":
            section[key] = None
        elif isinstance(value, str) and key not in MANY:
            section[key] = _named(draft, value, address)
        elif isinstance(value, list):
            section[key] = [_named(draft, x, (*address, i)) if isinstance(x, str) else x for i, x in enumerate(value)]


def _named(draft: Draft, name: str, path: Path) -> dict[str, str]:
    draft.origins[(*path, "name")] = draft.origins[path]
    return {"name": name}


COMMAND_LINE = "command line"


def parse_override(text: str) -> tuple[str, Any]:
    """Return the address and the value of ``key=value``."""
    address, equals, value = text.partition("=")
    if not equals or "" in parse_path(address):
        raise RecipeError("expected `key=value`", where=f"{COMMAND_LINE}: {text}")
    return address, yaml_strict.parse(value, f"{COMMAND_LINE}: {address}").data


def apply(draft: Draft, text: str) -> Path:
    """Set one value, in place, and return its address; missing mappings are created, entries of lists must exist.

    Entries go by position or name: ``rewards.0.weight=2``, ``rewards.accuracy.weight=2``.
    """
    address, value = parse_override(text)
    *parents, last = parse_path(address)
    container, path = _follow(draft, parents)
    key = _key(draft, container, last, path)
    container[key] = value
    draft.mark(value, (*path, key), COMMAND_LINE)
    expand_names(draft)
    return (*path, key)


def _follow(draft: Draft, steps: list[str]) -> tuple[Any, Path]:
    container: Any = draft.data
    path: Path = ()
    for step in steps:
        key = _key(draft, container, step, path)
        if isinstance(container, dict) and key not in container:
            _create_mapping(draft, container, (*path, key))
        container, path = container[key], (*path, key)
    return container, path


def _create_mapping(draft: Draft, container: dict[str, Any], path: Path) -> None:
    """Create the mapping at `path`: the section that a stage inherits, or an empty one."""
    *parents, key = path
    if parents[:1] == ["stages"] and (section := inherited(draft, tuple(parents), str(key))) is not None:
        container[str(key)] = section
        return
    if key in ("stages", "rewards", "callbacks") and (not parents or parents[0] == "stages"):
        raise draft.error("is not in this recipe", path, hint=f"give it as a whole: `{format_path(path)}=[…]`")
    container[str(key)] = {}
    draft.origins[path] = COMMAND_LINE


def _key(draft: Draft, container: Any, step: str, path: Path) -> str | int:
    if isinstance(container, dict):
        return step
    if not isinstance(container, list):
        raise draft.error(f"unknown key '{step}' of {describe(container)}", path)
    try:
        return position(container, step)
    except RecipeError as error:
        raise draft.error(error.problem, path, allowed=error.allowed, hint=error.hint) from None
