"""Inheritance of a recipe's top level by its stages: sections as a whole, `trainer:` key by key."""

from __future__ import annotations

from typing import Any

from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.sections import SECTIONS


def expand(draft: Draft) -> tuple[list[dict[str, Any]], list[Path]]:
    """Return one complete body per stage, and its address: () if the top level is the only stage.

    Raises:
        RecipeError: A later stage with a model of its own.
    """
    if draft.data.get("stages") is None:
        return [{key: value for key, value in draft.data.items() if key in SECTIONS}], [()]
    bodies = [(place, body) for place, body in draft.bodies() if place]
    return [_complete(draft, place, body) for place, body in bodies], [place for place, _ in bodies]


def _complete(draft: Draft, place: Path, own: dict[str, Any]) -> dict[str, Any]:
    body = {"name": own.get("name")}
    _refuse_second_start(draft, place, own.get("model"))
    for section in SECTIONS:
        if section == "trainer":
            body[section] = _trainer(draft, place, own)
        elif section in own:
            body[section] = own[section]
        elif section in draft.data:
            body[section] = inherited(draft, place, section)
    return body


def inherited(draft: Draft, place: Path, section: str) -> Any:
    """Return a copy of the section that the stage at `place` inherits; None without one, and for `trainer:`.

    A later stage starts from the weights of the one before, so of `model:` it inherits the adapter only.
    """
    shared = len(place) == 2 and section in SECTIONS and section != "trainer"
    value = draft.data.get(section) if shared else None
    if isinstance(value, dict) and section == "model" and place[1] != 0:
        value = {key: x for key, x in value.items() if key == "lora"}
    return None if value is None else draft.copy(value, (section,), (*place, section))


def _trainer(draft: Draft, place: Path, own: dict[str, Any]) -> dict[str, Any]:
    mine, shared = own.get("trainer") or {}, draft.data.get("trainer") or {}
    taken = {
        key: draft.copy(value, ("trainer", key), (*place, "trainer", key))
        for key, value in shared.items()
        if key not in mine
    }
    return {**taken, **mine}


def _refuse_second_start(draft: Draft, place: Path, model: dict[str, Any] | None) -> None:
    if place[1] != 0 and (extra := [key for key in model or {} if key != "lora"]):
        raise draft.error(
            f"unknown key '{extra[0]}': a later stage starts from the model of the stage before",
            (*place, "model", extra[0]),
            allowed="lora",
            hint="leave it out, or make it a recipe of its own",
        )
