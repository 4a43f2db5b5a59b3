"""Holds a recipe against the grammar, and says in words what does not fit. The first of the three walls."""

from __future__ import annotations

from typing import Any

import pydantic

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.errors import RecipeError, mistyped, nearest
from rlm_plugins.hookspecs import beside
from rlm_plugins.messages import found, text_number
from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.sections import MANY, Algorithm, Body, Critic, Document, Evaluation, Keys, Plugins, Speed

_NAMED = ("model", "environment", "rewards", "algorithm", "generator", "callbacks")
_OFF = ("speed",)
"""Sections that may be switched off as a whole."""
_NONE = (*_OFF, "generator")
"""Where ``none`` may stand in place of a mapping."""


def spell_out(draft: Draft) -> None:
    """Turns every bare name into a mapping (``addition`` → ``{name: addition}``) and ``none`` into null, in place."""
    for path, body in draft.bodies():
        _spell_out(draft, body, path, _NAMED)
        body |= {key: None for key in _OFF if body.get(key) == "none"}
        if isinstance(row := body.get("algorithm"), dict):
            _spell_out(draft, row, (*path, "algorithm"), SLOTS)


def _spell_out(draft: Draft, holder: dict[str, Any], path: Path, keys: tuple[str, ...]) -> None:
    for key in keys:
        value, here = holder.get(key), (*path, key)
        if value == "none":
            holder[key] = None
        elif isinstance(value, str) and key not in MANY:
            holder[key] = _named(draft, value, here)
        elif isinstance(value, list):
            holder[key] = [_named(draft, x, (*here, i)) if isinstance(x, str) else x for i, x in enumerate(value)]


def _named(draft: Draft, name: str, path: Path) -> dict[str, str]:
    draft.origins[(*path, "name")] = draft.origins[path]
    return {"name": name}


def check(draft: Draft) -> None:
    """The first wall.

    Raises:
        RecipeError: The first key that does not belong where it stands, is missing, or has a value of another type.
    """
    try:
        Document.model_validate(draft.data)
    except pydantic.ValidationError as error:
        raise _in_words(draft, error.errors()) from None


_ALLOWED = {
    "string_type": "text",
    "bool_type": "true or false",
    "string_too_short": "text of at least one character",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-': it names a folder",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le:g} or less",
    "too_short": "at least one entry",
    "literal_error": "{expected}",
}
_KEYS: dict[Any, type[Keys]] = {
    "algorithm": Algorithm,
    "critic": Critic,
    "speed": Speed,
    "evaluation": Evaluation,
    "plugins": Plugins,
    None: Document,
}


def _in_words(draft: Draft, errors: list[Any]) -> RecipeError:
    """The first error; what else would have been allowed there is said by those of the other branches of a union."""
    error = errors[0]
    path, value = _address(draft.data, error), error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown_key(draft, path)
    if error["type"] == "missing":
        hint = mistyped(str(path[-1]), map(str, value)) if isinstance(value, dict) else ""
        return draft.error(f"the key '{path[-1]}' is missing", path, hint=hint)
    allowed = " or ".join(dict.fromkeys(_allowed(other) for other in errors if _address(draft.data, other) == path))
    if allowed == "a mapping" and path[-1] in _NONE:
        allowed = "a mapping or none"
    hint = "write a list: `- {name: …}`" if allowed == "a list" and isinstance(value, dict) else text_number(value)
    return draft.error(f"found {found(value)}", path, allowed=allowed, hint=hint)


def _allowed(error: Any) -> str:
    return str(_ALLOWED.get(error["type"], error["msg"]).format(**error.get("ctx", {})))


def _unknown_key(draft: Draft, path: Path) -> RecipeError:
    key = str(path[-1])
    model = _KEYS.get(path[-2] if path[1:] else None, Body)
    names = [field.alias or name for name, field in model.model_fields.items()]
    if model is Algorithm:
        hint = beside(key) or "a knob stands inside its slot: `policy_loss: {epsilon: 0.3}`"
    elif key in SLOTS:
        hint = f"write it under `algorithm:`, as `algorithm: {{name: …, {key}: …}}`"
    else:
        hint = "settings of TRL stand under `trainer:`, knobs of a part beside its `name`"
    return draft.error(f"there is no key '{key}'", path, allowed=", ".join(names), hint=nearest(key, names) or hint)


def _address(data: Any, error: Any) -> Path:
    """The address in the recipe: pydantic's, without the names of the branches of a union it tried."""
    path: Path = ()
    for n, step in enumerate(error["loc"]):
        inside = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        if inside or (error["type"] == "missing" and n == len(error["loc"]) - 1):
            path = (*path, step)
        if inside:
            data = data[step]
    return path
