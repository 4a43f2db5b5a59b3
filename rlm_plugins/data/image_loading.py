"""Loading of the images of examples, from paths and bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rlm_plugins.data.images import image_columns, undecoded
from rlm_plugins.data.tables import row_address
from rlm_plugins.errors import RecipeError, RlmError


def with_loaded_images(rows: Any, folder: Path, path: str = "") -> Any:
    """Return examples whose images are decoded when they are read.

    Args:
        rows: A `datasets.Dataset` or a stream. An image is a path, its bytes, or an image of `datasets`.
        folder: Relative paths start here.
        path: Their file, whose lines errors name.

    Raises:
        RecipeError: Pillow is not installed, or an image cannot be opened; it names the row, counted from 0. The images
            of a stream are opened when they are read.
    """
    names = image_columns(rows.column_names or next(iter(rows), {}))
    if not names:
        return rows
    _require_pillow()
    import datasets

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


def open_images(files: Sequence[Path]) -> list[Any]:
    """Return the images in files.

    Raises:
        RlmError: Pillow is not installed, or a file is no image; it names the file.
    """
    if not files:
        return []
    _require_pillow()
    from PIL import Image

    images = []
    for file in files:
        try:
            images.append(Image.open(file).convert("RGB"))
        except (OSError, ValueError) as error:
            raise RlmError(f"an image cannot be opened: {error}", where=str(file)) from None
    return images


def _cast(rows: Any, names: list[str], feature: Any) -> Any:
    """Return examples with a feature of `datasets` for their images."""
    import datasets

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


def _require_pillow() -> None:
    try:
        from PIL import EpsImagePlugin
    except ImportError:
        problem = "the examples have images, and Pillow is not installed"
        raise RecipeError(problem, where="environment", hint="pip install pillow") from None
    EpsImagePlugin.gs_binary = False  # PostScript of a data set is a program, which Pillow would give to Ghostscript
