"""Images of examples: loading from paths and bytes, and messages that hold them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rlm_plugins.data.tables import row_address
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import datasets

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
    """Return the prompt of an example with its images inside the first user message, as TRL gives it to a processor."""
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


def with_loaded_images(rows: Any, folder: Path, path: str = "") -> Any:
    """Return examples whose images (paths, bytes, or images of `datasets`) are decoded when they are read."""
    names = image_columns(rows.column_names or next(iter(rows), {}))
    if not names:
        return rows
    require_pillow()
    if any(isinstance(image, str) for image in _images(next(iter(undecoded(rows))), names)):
        rows = rows.map(lambda row: {name: _absolute(row[name], folder) for name in names})
    if rows.features is None:  # a stream of a file without types
        return rows.map(lambda row: {name: _opened(row[name]) for name in names})
    rows = _cast(rows, names, datasets.Image(decode=False))
    for number, row in enumerate(rows.select_columns(names) if hasattr(rows, "__len__") else ()):
        if problem := _defect(_images(row, names)):
            hint = "paths are relative to `image_folder`, by default the folder of the recipe"
            raise RecipeError(problem, where=row_address(path, number), hint=hint)
    return _cast(rows, names, datasets.Image())


def _cast(rows: Any, names: list[str], feature: Any) -> Any:
    """Return examples with a feature of `datasets` for their images."""
    first = next(iter(undecoded(rows)))
    for name in names:
        rows = rows.cast_column(name, datasets.List(feature) if isinstance(first[name], list) else feature)
    return rows


def _images(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    columns = [row[name] for name in names]
    return list(chain.from_iterable(column if isinstance(column, list) else [column] for column in columns))


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(path, folder) for path in value]
    return str(folder / Path(value).expanduser()) if isinstance(value, str) else value


def _opened(value: Any) -> Any:
    """Return images of a path or bytes."""
    from PIL import Image

    if isinstance(value, list):
        return [_opened(image) for image in value]
    try:
        return Image.open(io.BytesIO(value) if isinstance(value, bytes) else value)
    except (OSError, ValueError, AttributeError) as error:
        raise RecipeError(f"an image cannot be opened: {error}", where="environment.path") from None


def _defect(images: Sequence[Any]) -> str:
    """Return why images of a row, not decoded, cannot be used; only their headers are read."""
    from PIL import Image

    if not images or None in images:
        return "an image is missing"
    for image in images:
        try:
            Image.open(io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"]).close()
        except (OSError, ValueError) as error:
            return f"an image cannot be opened: {error}"
    return ""


def require_pillow() -> None:
    """Check that Pillow is installed, and forbid it to run Ghostscript."""
    try:
        from PIL import EpsImagePlugin
    except ImportError:
        problem = "the examples have images, and Pillow is not installed"
        raise RecipeError(problem, where="environment", hint="pip install pillow") from None
    EpsImagePlugin.gs_binary = False  # PostScript of a data set is a program, which Pillow would give to Ghostscript
