"""Inheritance of a recipe's top level by its stages: sections as a whole, `trainer:` key by key."""

from __future__ import annotations

from typing import Any

from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.sections import KEYS, SECTIONS


def expand(draft: Draft) -> tuple[list[dict[str, Any]], list[Path]]:
    """Return one complete body per stage, and its address: () if the top level is the only stage.

    Raises:
        RecipeError: A later stage with a model of its own.
    """
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
    """Return a copy of the section that the stage at `stage_path` inherits; None without one, and for `trainer:`.

    A later stage starts from the weights of the one before, so of `model:` it inherits the adapter only.
    """
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
