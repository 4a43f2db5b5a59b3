"""Images of examples, and messages that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError

COLUMNS = ("image", "images")
"""Columns of images, as in TRL: one image, or a list of them."""


def image_columns(names: Any) -> list[str]:
    """Return the columns of images among the names of columns."""
    return [name for name in COLUMNS if name in names]


def images_of(example: Mapping[str, Any]) -> list[Any]:
    """Return the images of an example, in their order.

    >>> images_of({"prompt": "no picture"})
    []
    """
    return [*(example.get("images") or ()), *([example["image"]] if example.get("image") is not None else [])]


def messages_of(example: Mapping[str, Any]) -> Any:
    """Return the prompt of an example with its images inside the first user message, as TRL passes it to a processor.

    Raises:
        RecipeError: The messages have another number of places for images.
    """
    from trl.data_utils import prepare_multimodal_messages

    try:
        return prepare_multimodal_messages(example["prompt"], images_of(example))
    except ValueError as error:
        raise RecipeError(f"the images do not fit the messages: {error}", where="environment") from None


def without_images(rows: Any) -> Any:
    """Return examples without their images, so that reading them decodes none."""
    if not hasattr(rows, "remove_columns"):
        return rows
    return rows.remove_columns(image_columns(rows.column_names or ()))


def undecoded(rows: Any) -> Any:
    """Return examples whose images are as they are stored; a list of examples as it is."""
    names = image_columns(getattr(rows, "column_names", None) or ())
    features = getattr(rows, "features", None)
    if not names or features is None:
        return rows
    import datasets

    for name in names:
        if isinstance(features[name], datasets.Image):
            rows = rows.cast_column(name, datasets.Image(decode=False))
        elif isinstance(getattr(features[name], "feature", None), datasets.Image):
            rows = rows.cast_column(name, datasets.List(datasets.Image(decode=False)))
    return rows


def identity(row: Mapping[str, Any]) -> str:
    """Return a text that two examples share if prompt and images are equal."""
    return repr(row["prompt"]) + _digests(row)


def image_ids(rows: Any) -> list[str]:
    """Return per example a text that differs if its images differ, and is empty without images."""
    names = image_columns(getattr(rows, "column_names", None) or next(iter(rows), {}))
    return [_digests(row) for row in undecoded(rows)] if names else [""] * len(rows)


def _digests(row: Mapping[str, Any]) -> str:
    return "".join(f"\n{_digest(image)}" for image in images_of(row))


def _digest(image: Any) -> str:
    if isinstance(image, Mapping) and image["bytes"] is None:
        return str(image["path"])
    stored = image["bytes"] if isinstance(image, Mapping) else image.tobytes()
    return hashlib.sha256(stored).hexdigest()
