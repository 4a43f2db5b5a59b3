"""Validation of a recipe against its sections, with errors in words: the first of the three checks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pydantic
import pydantic_core

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.errors import RecipeError, mistyped
from rlm_plugins.glossary import suggest
from rlm_plugins.hooks import option_hint
from rlm_plugins.messages import expected
from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.sections import KEYS, MANY, SECTIONS, Document, keys_of_section
from rlm_plugins.registry.validation_errors import FieldError, most_specific_error

_PART_SECTIONS = ("model", "environment", "rewards", "algorithm", "generator", "callbacks", "observers")
_OFF = ("speed",)
"""Sections that `none` turns off."""
_NONE = (*_OFF, "generator")
"""Keys that take `none` in place of a mapping."""


def expand_names(draft: Draft) -> None:
    """Replace every bare name by a mapping (``addition`` → ``{name: addition}``) and ``none`` by null, in place."""
    for path, body in draft.bodies():
        _expand_names(draft, body, path, _PART_SECTIONS)
        body |= {key: None for key in _OFF if body.get(key) == "none"}
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


def check(draft: Draft) -> None:
    """Check keys and types of a recipe: the first of the three checks.

    Raises:
        RecipeError: The first key that is unknown or missing, or has a value of another type.
    """
    try:
        # As JSON, where strict mode takes a mapping for a dataclass.
        Document.model_validate_json(pydantic_core.to_json(_without_extensions(draft)))
    except pydantic.ValidationError as error:
        raise _error(draft, most_specific_error(error.errors(), draft.data)) from None


def _without_extensions(draft: Draft) -> dict[str, Any]:
    """Return a recipe without the sections that packages own: `resolve` checks them, with the registry.

    Raises:
        RecipeError: Such a section is neither a mapping nor `none`.
    """
    owned = extension_keys(draft)
    if not owned:
        return draft.data
    for path, body in draft.bodies():
        for key in owned & set(body):
            body[key] = None if body[key] == "none" else body[key]
            if not isinstance(body[key], dict | None):
                raise draft.error(expected("a mapping or none", body[key]), (*path, key))
    stages = draft.data.get("stages")
    plain = {key: value for key, value in draft.data.items() if key not in owned}
    if isinstance(stages, list):
        plain["stages"] = [_without(stage, owned) if isinstance(stage, dict) else stage for stage in stages]
    return plain


def _without(body: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}


def extension_keys(draft: Draft) -> set[str]:
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
    if field_error.kind == "missing":
        return draft.error(f"the key '{address[-1]}' is missing", address, hint=_missing_hint(field_error))
    problem = field_error.problem
    if address[-1] in _NONE and problem.startswith("expected a mapping,"):
        problem = problem.replace("a mapping", "a mapping or none", 1)
    return draft.error(problem, address, hint=field_error.hint)


def _missing_hint(field_error: FieldError) -> str:
    key, section = str(field_error.address[-1]), field_error.value
    if not isinstance(section, dict):
        return ""
    if similar := mistyped(key, map(str, section)):
        return similar
    keys = ", ".join(f"{name}: …" for name in section)
    return f"add the name: `{{name: …, {keys}}}`; `rlm plugins` lists the names" if key == "name" else ""


def _unknown_key(draft: Draft, address: Path) -> RecipeError:
    key = str(address[-1])
    section = str(address[-2]) if address[1:] else ""
    names = keys_of_section(section)
    hint = suggest(key, names)
    if section in SECTIONS and key in SECTIONS:
        hint = hint or f"`{key}:` is a section of its own, beside `{section}:`"
    elif section == "algorithm":
        hint = hint or option_hint(key) or "a knob belongs inside its slot: `policy_loss: {epsilon: 0.3}`"
    elif key in SLOTS:
        hint = hint or f"it belongs under `algorithm:`, as `algorithm: {{name: …, {key}: …}}`"
    else:
        hint = hint or "settings of TRL belong under `trainer:`, knobs of a part beside its `name`"
    return draft.error(f"unknown key '{key}'", address, allowed=", ".join(names), hint=hint)
