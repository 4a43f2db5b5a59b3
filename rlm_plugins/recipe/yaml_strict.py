"""YAML of recipes: the 1.2 core schema, strict.

PyYAML's own loaders take ``1e-6`` for a string, ``no`` for false, ``1:30`` for ninety and ``010`` for eight. The second
of two equal keys wins, and tags and aliases are followed. Here ``1e-6`` and ``1E5`` are numbers, ``010`` is ten, ``no``
and ``1:30`` are strings. Duplicate keys, tags, anchors, several documents and non-finite numbers are errors. Only
PyYAML's parser is used (text → events); `yaml_events` builds the values.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected
from rlm_plugins.recipe.yaml_events import Document, Reader

MAX_BYTES = 256_000
"""Largest size of a recipe in bytes."""


def read(path: Path) -> Document:
    """Return the document of a recipe file.

    Raises:
        RecipeError: No such file, an error of :func:`parse`, or a document that is no mapping.
    """
    if not path.is_file():
        candidates = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise RecipeError("file not found", where=str(path), hint=nearest(path.name, candidates))
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise RecipeError(f"is larger than {MAX_BYTES // 1000} kB", where=str(path), hint="a recipe is a page of text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise RecipeError("expected UTF-8 text", where=f"{path} line {line}") from None
    document = parse(text, str(path))
    if not isinstance(document.data, dict):
        problem = "the recipe is empty" if document.data is None else expected("a mapping", document.data)
        raise RecipeError(problem, where=f"{path} line 1", allowed="`key: value` lines, as in `algorithm: grpo`")
    return document


def parse(text: str, source: str) -> Document:
    """Return the only document in `text`.

    Args:
        text: YAML.
        source: Its name in errors: the path of the file, or the override.

    Raises:
        RecipeError: It names `source`, line and address.
    """
    try:
        return Reader(text, source).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "YAML indents with spaces" if "'\\t'" in problem else ""
        raise RecipeError(problem, where=f"{source} line {mark.line + 1 if mark else 1}", hint=hint) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise RecipeError(
            f"unsupported character U+{int(error.character):04X}", where=f"{source} line {line}"
        ) from None
    except (ValueError, OverflowError) as error:  # PyYAML: "\UFFFFFFFF", %YAML with a version of 5,000 digits
        raise RecipeError(f"invalid YAML: {error}", where=source) from None
