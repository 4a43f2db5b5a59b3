"""Checks of examples with images against model, trainer and prompts, before any weight is loaded."""

from __future__ import annotations

from typing import Any

from rlm_plugins.data.images import image_columns, images_of, messages_of, undecoded
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.required_columns import columns
from rlm_plugins.specs import EnvironmentSpec, ModelSpec


def check_images(environment_spec: EnvironmentSpec, source: ModelSpec, produces: str, critic: Any, where: str) -> None:
    """Check that a model sees the images of its examples, and that the stage can train on them.

    Args:
        environment_spec: The data sets.
        source: The model.
        produces: Kind of model that the trainer produces; only a `policy` is trained on images.
        critic: The critic, or None.
        where: Address of the environment.

    Raises:
        RecipeError: It names the column and what to change.
    """
    names = image_columns(columns(environment_spec.train))
    if not names:
        return
    column = f"the examples have a column '{names[0]}'"
    if source.processor is None:
        hint = "choose a vision-language model, or rename or remove the column"
        raise RecipeError(f"{column}, and the model '{source.origin}' takes no images", where=where, hint=hint)
    for is_unsupported, feature in (
        (produces != "policy", f"the trainer of a {produces.replace('_', ' ')}"),
        (critic is not None, "a critic"),
        (environment_spec.multi_turn, "an environment of several turns"),
    ):
        if is_unsupported:
            raise RecipeError(f"{column}, and {feature} takes no images", where=where, hint="remove the column")
    first = next(iter(undecoded(environment_spec.train)))
    if isinstance(first["prompt"], str):
        hint = "images belong to a message: `chat: true`"
        raise RecipeError(f"{column}, and the prompts are plain text", where=where, hint=hint)
    if images_of(first):
        messages_of(first)
