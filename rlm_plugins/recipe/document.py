"""A recipe file: read with the origin of every value, short names and overrides applied, one checked body per stage.

The later checks need the registry (`compose`) and TRL (`trainer_settings`).
"""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pydantic_core

from rlm_plugins.equation.glossary import suggest
from rlm_plugins.equation.hooks import option_hint
from rlm_plugins.errors import ADAPTER, RecipeError, describe, expected, mistyped, nearest_file
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.paths import Path, absolute_addresses, format_path, nodes, parse_path, position
from rlm_plugins.recipe.sections import KEYS, MANY, SECTIONS, Document, folder_name, keys_of_section
from rlm_plugins.registry.setting import FieldError, most_specific_error
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
    if stage_path[1] != 0 and (extra := [key for key in stage.get("model") or {} if key != "lora"]):
        problem = f"unknown key '{extra[0]}': a later stage starts from the model of the stage before"
        hint = "leave it out, or make it a recipe of its own"
        raise draft.error(problem, (*stage_path, "model", extra[0]), allowed="lora", hint=hint)
    extensions = [key for key in (*draft.data, *stage) if key not in KEYS]
    for section in (*SECTIONS, *dict.fromkeys(extensions)):
        if section == "trainer":
            own, shared = stage.get(section) or {}, draft.data.get(section) or {}
            paths = {key: (section, key) for key in shared if key not in own}
            body[section] = {key: draft.copy(shared[key], p, (*stage_path, *p)) for key, p in paths.items()} | own
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
    container: Any = draft.data
    path: Path = ()
    for step in parents:
        key = _key(draft, container, step, path)
        if isinstance(container, dict) and key not in container:
            _create_mapping(draft, container, (*path, key))
        container, path = container[key], (*path, key)
    key = _key(draft, container, last, path)
    container[key], path = value, (*path, key)
    draft.origins = {p: origin for p, origin in draft.origins.items() if p[: len(path)] != path}
    draft.origins.update((inner, COMMAND_LINE) for inner, _ in nodes(value, path))
    expand_names(draft)
    return path


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
    if not parents and key in _REQUIRED and (stages := draft.data.get("stages")):
        hint = f"`stages[{len(stages) - 1}].{key}.…=…`"
        raise draft.error("has no effect: every stage has its own", path, hint=hint)


def _key(draft: Draft, container: Any, step: str, path: Path) -> str | int:
    if isinstance(container, dict):
        return step
    if not isinstance(container, list):
        raise draft.error(f"unknown key '{step}' of {describe(container)}", path)
    try:
        return position(container, step)
    except RecipeError as error:
        raise draft.error(error.problem, path, allowed=error.allowed, hint=error.hint) from None


_NONE = ("generator", "engine")
"""Keys that take `none` in place of a mapping."""


def check(draft: Draft) -> None:
    """Check keys and types of a recipe: the first of the three checks."""
    try:
        # As JSON, where strict mode takes a mapping for a dataclass.
        Document.model_validate_json(pydantic_core.to_json(_without_extensions(draft)))
    except pydantic.ValidationError as error:
        raise _error(draft, most_specific_error(error.errors(), draft.data)) from None


def _without_extensions(draft: Draft) -> dict[str, Any]:
    """Return a recipe without the sections that packages own: `resolve` checks them, with the registry."""
    owned = _extension_keys(draft)
    if not owned:
        return draft.data
    for path, body in draft.bodies():
        for key in owned & set(body):
            if isinstance(body[key], str):
                body[key] = None if body[key] == "none" else {body[key]: True}
            if not isinstance(body[key], dict | None):
                raise draft.error(expected("a mapping or none", body[key]), (*path, key))

    def others(body: Any) -> Any:
        return {key: x for key, x in body.items() if key not in owned} if isinstance(body, dict) else body

    plain: dict[str, Any] = others(draft.data)
    stages = plain.get("stages")
    return {**plain, "stages": [*map(others, stages)]} if isinstance(stages, list) else plain


def _extension_keys(draft: Draft) -> set[str]:
    """Return the keys of stages that are sections of installed packages, or of a plugin file that the recipe loads."""
    unknown = {str(key) for _, body in draft.bodies() for key in body if key not in KEYS}
    if not unknown:
        return set()
    plugins = draft.data.get("plugins")
    if isinstance(plugins, dict) and plugins.get("load"):
        return unknown  # the file may own them
    from rlm_plugins.registry import Registry

    return unknown & {*Registry().section_names()}


def _error(draft: Draft, field_error: FieldError) -> RecipeError:
    address = field_error.address
    if field_error.kind == "unknown":
        return _unknown_key(draft, address)
    example = next((f"as in `{_EXAMPLES[key]}`" for key in reversed(address) if key in _EXAMPLES), "")
    if field_error.kind == "missing":
        hint = _missing_hint(field_error) or example
        return draft.error(f"the key '{address[-1]}' is missing", address, hint=hint)
    problem = field_error.problem
    if address[-1] in _NONE and problem.startswith("expected a mapping,"):
        problem = problem.replace("a mapping", "a mapping or none", 1)
    is_form = problem.startswith(("expected a mapping", "expected a list"))
    return draft.error(problem, address, hint=field_error.hint or example * is_form)


def _missing_hint(field_error: FieldError) -> str:
    key, section = str(field_error.address[-1]), field_error.value if isinstance(field_error.value, dict) else {}
    is_name = f", or `{{name: {next(iter(section))}}}` if that is the name" if len(section) == 1 else ""
    add = f"add the name: `{{name: …, {': …, '.join(section)}: …}}`{is_name}" if key == "name" and section else ""
    return mistyped(key, map(str, section)) or add


def _unknown_key(draft: Draft, address: Path) -> RecipeError:
    key = str(address[-1])
    section = str(address[-2]) if address[1:] else ""
    names = keys_of_section(section)
    hint = suggest(key, names)
    if section in SECTIONS and key in SECTIONS:
        hint = hint or f"`{key}:` is a section of its own, beside `{section}:`"
    elif section == "algorithm":
        hint = (
            hint
            or option_hint(key)
            or f"a knob belongs in its slot: `policy_loss: {{epsilon: 0.3}}`, a part too: `{_EXAMPLES['penalties']}`"
        )
    elif key in SLOTS:
        hint = hint or f"it belongs under `algorithm:`, as `algorithm: {{name: …, {key}: …}}`"
    else:
        hint = hint or "settings of TRL belong under `trainer:`, knobs of a part beside its `name`"
    return draft.error(f"unknown key '{key}'", address, allowed=", ".join(names), hint=hint)


PYTHON = "given in Python"
"""Origin of a value of :func:`of_mapping`."""


@dataclass
class Recipe:
    """A recipe, loaded.

    Args:
        path: The file.
        name: Its name; by default the stem of the file.
        load: Python files to load as plugins.
        block: Installed plugins to leave out.
        packages: Installed packages whose functions the recipe addresses.
        overrides: ``key=value``, as they were applied.
        bodies: One per stage, with the sections of the top level; parts are mappings with a ``name``, algorithms are
            not merged yet.
        stage_paths: The address of each body: () where the top level is the one stage, else ("stages", 0), ….
        origins: Address → ``recipe.yaml line 12`` or ``command line``; `compose` adds defaults.
    """

    path: pathlib.Path
    name: str
    load: list[pathlib.Path]
    block: list[str]
    bodies: list[dict[str, Any]]
    stage_paths: list[Path]
    origins: dict[str, str]
    packages: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)

    def locate(self, error: RecipeError) -> RecipeError:
        """Return `error` with the line of the recipe after its address."""
        address = error.where.partition(" ")[0]
        while address and address not in self.origins:
            address = address[: max(address.rfind("."), address.rfind("["), 0)]
        if not address:
            return error
        return error.at(f"{error.where} ({self.origins[address]})")


def load(path: str | pathlib.Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe.

    Args:
        path: A YAML file.
        overrides: ``key=value``, applied in this order.

    Raises:
        RecipeError: It names the address and the line.
    """
    file = pathlib.Path(path)
    document = yaml_strict.read(file)
    lines = {p: f"{file.name} line {line}" for p, line in document.lines.items()}
    return _recipe(Draft(document.data, lines), file, overrides)


def of_mapping(data: Mapping[str, Any], overrides: Sequence[str] = (), *, name: str = "python") -> Recipe:
    """Return the recipe in a mapping of plain data; paths are relative to the working directory.

    Raises:
        RecipeError: It names the address.
    """
    try:
        plain = pydantic_core.to_jsonable_python(data)
    except pydantic_core.PydanticSerializationError as error:
        hint = "objects go into `model=`, `train_dataset=`, `rewards=`; functions into the slots of `algorithm`"
        raise RecipeError(f"expected plain data: {error}", where="the recipe", hint=hint) from None
    origins: dict[Path, str] = {path: PYTHON for path, _ in nodes(plain)}
    return _recipe(Draft(plain, origins), pathlib.Path(f"{name}.yaml"), overrides)


def _recipe(draft: Draft, file: pathlib.Path, overrides: Sequence[str]) -> Recipe:
    expand_names(draft)
    changed = [apply(draft, text) for text in overrides]
    check(draft)
    bodies, stage_paths = expand(draft)
    for address in changed:
        _require_effect(draft, address, stage_paths)
    for body, stage_path in zip(bodies, stage_paths, strict=True):
        _require_sections(draft, body, stage_path)
    plugins = draft.data.get("plugins") or {}
    return Recipe(
        path=file,
        name=draft.data.get("name") or folder_name(file.stem),
        load=[_plugin_file(draft, file.parent, i) for i in range(len(plugins.get("load", ())))],
        block=plugins.get("block", []),
        packages=plugins.get("packages", []),
        bodies=[absolute_addresses(body, file.parent.resolve()) for body in bodies],
        stage_paths=stage_paths,
        origins={format_path(p): origin for p, origin in draft.origins.items()},
        overrides=list(overrides),
    )


def _require_effect(draft: Draft, address: Path, stage_paths: list[Path]) -> None:
    """Check that an override of the top level reaches a stage."""
    if stage_paths == [()] or (address[0] not in SECTIONS and address[0] in KEYS):
        return
    reached = [(*stage_path, *address) for stage_path in stage_paths]
    if not any(p[: len(r)] == r and draft.origins[p] == COMMAND_LINE for p in draft.origins for r in reached):
        raise draft.error("has no effect: every stage has its own", address, hint=f"`{format_path(reached[-1])}=…`")


_REQUIRED = ("model", "environment", "algorithm")
_EXAMPLES: dict[str | int, str] = {
    "model": "model: Qwen/Qwen3-0.6B",
    "lora": f"lora: {ADAPTER}",
    "environment": "environment: addition",
    "rewards": "rewards: [accuracy]",
    "algorithm": "algorithm: grpo",
    "penalties": "penalties: [{name: kl, beta: 0.1}]",
    "critic": "critic: {kind: shared}",
    "trainer": "trainer: {learning_rate: 1e-5}",
    "evaluation": "evaluation: {every: 10}",
    "plugins": "plugins: {load: [my_parts.py]}",
    "stages": "stages: [{algorithm: sft}, {algorithm: grpo}]",
    **{key: f"{key}: [{{name: …}}]" for key in sorted(MANY - {"rewards", "penalties"})},
}
"""Key → how it looks."""


def _require_sections(draft: Draft, body: dict[str, Any], stage_path: Path) -> None:
    is_first = stage_path[-1:] in ((), (0,))
    for section in _REQUIRED:
        if body.get(section) is None and (section != "model" or is_first):
            problem, hint = f"the key '{section}' is missing", f"as in `{_EXAMPLES[section]}`"
            if section in body:
                problem, hint = f"`{section}:` is empty", f"indent what belongs to it, or {hint}"
            raise draft.error(problem, (*stage_path, section), hint=hint)
    if is_first and body["model"].get("name") is None:
        hint = f"as in `{_EXAMPLES['model']}`; a stage inherits the section as a whole or not at all"
        problem, address = "the key 'name' is missing: the first stage requires a model", (*stage_path, "model", "name")
        raise draft.error(problem, address, hint=hint)


def _plugin_file(draft: Draft, folder: pathlib.Path, position: int) -> pathlib.Path:
    name = draft.data["plugins"]["load"][position]
    file = (folder / name).resolve()
    if not file.is_file():
        raise draft.error(
            f"file not found: {file}",
            ("plugins", "load", position),
            allowed="a Python file; its path is relative to the recipe",
            hint=nearest_file(file, "*.py"),
        )
    return file
