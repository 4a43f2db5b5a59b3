"""Reads the YAML of recipes: the 1.2 core schema, and nothing that hides what a recipe says.

PyYAML's own loaders read ``1e-6`` as text, ``no`` as false, ``1:30`` as ninety and ``010`` as eight; they let the
second of two equal keys win, and they follow tags and aliases. Here ``1e-6`` and ``1E5`` are numbers, ``010`` is ten,
``no`` and ``1:30`` are text, and duplicate keys, tags, anchors, several documents and numbers that are not finite are
errors. Only PyYAML's parser is used (text → events); what events mean is decided in `yaml_events`.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected
from rlm_plugins.recipe.yaml_events import Document, Reader

LARGEST = 256_000
"""Bytes of a recipe."""


def read(path: Path) -> Document:
    """A recipe file.

    Raises:
        RecipeError: No such file, or one of the errors of :func:`parse`, or a document that is no mapping.
    """
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise RecipeError("there is no such file", where=str(path), hint=nearest(path.name, beside))
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise RecipeError(f"is larger than {LARGEST // 1000} kB", where=str(path), hint="a recipe is a page of text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise RecipeError("this is not UTF-8 text", where=f"{path} line {line}") from None
    document = parse(text, str(path))
    if not isinstance(document.data, dict):
        problem = "the recipe is empty" if document.data is None else expected("a mapping", document.data)
        raise RecipeError(problem, where=f"{path} line 1", allowed="`key: value` lines, as in `algorithm: grpo`")
    return document


def parse(text: str, source: str) -> Document:
    """The one document in `text`.

    Args:
        text: YAML.
        source: What to call it in errors: the path of the file, or the override it stands in.

    Raises:
        RecipeError: With `source`, the line and the address of what it is about.
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
            f"the character U+{int(error.character):04X} is no text", where=f"{source} line {line}"
        ) from None
    except (ValueError, OverflowError) as error:  # PyYAML: "\UFFFFFFFF", %YAML with a version of 5,000 digits
        raise RecipeError(f"cannot be read: {error}", where=source) from None
