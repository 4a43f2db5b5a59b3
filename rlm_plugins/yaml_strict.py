"""Reads the YAML of recipes: the 1.2 core schema, and nothing that hides what a recipe says.

PyYAML's own loaders read ``1e-6`` as text, ``no`` as false, ``1:30`` as ninety and ``010`` as eight; they let the
second of two equal keys win, and they follow tags and aliases. Here ``1e-6`` and ``1E5`` are numbers, ``010`` is ten,
``no`` and ``1:30`` are text, and duplicate keys, tags, anchors, several documents and numbers that are not finite are
errors. Only PyYAML's parser is used (text → events); what the events mean is decided in this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlm_plugins import paths
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.wording import found, short
from rlm_plugins.yaml_scalars import is_text, plain

LARGEST = 256_000
"""Bytes of a recipe."""
DEEPEST = 20
"""Mappings and lists inside each other."""
MOST = 10_000
"""Values in a recipe: the parser reads about as many in a fifth of a second."""


@dataclass(frozen=True)
class Document:
    """What a YAML text says, and where.

    Args:
        data: Mappings (with text keys), lists, text, numbers, booleans, None.
        lines: Address of every value → its line, from 1.
    """

    data: Any
    lines: dict[paths.Path, int]


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
        problem = "the recipe is empty" if document.data is None else f"found {found(document.data)}"
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
        return _Reader(text, source).document()
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


@dataclass
class _Reader:
    """Builds values from the parser's events, and stops at the first that a recipe may not contain."""

    text: str
    source: str
    lines: dict[paths.Path, int] = field(default_factory=dict)

    def document(self) -> Document:
        self.events: Iterator[Any] = yaml.parse(self.text, Loader=yaml.SafeLoader)
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return Document(None, {})
        data = self.value(next(self.events), ())
        next(self.events)
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.error("a second document begins here", after, (), hint="a recipe is one document")
        return Document(data, self.lines)

    def value(self, event: Any, path: paths.Path) -> Any:
        self.refuse_magic(event, path)
        if len(path) >= DEEPEST and not isinstance(event, yaml.ScalarEvent):
            raise self.error(f"more than {DEEPEST} levels deep", event, ())
        if len(self.lines) >= MOST:
            raise self.error(f"more than {MOST} values", event, ())
        self.lines[path] = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path)
        return self.list(path) if isinstance(event, yaml.SequenceStartEvent) else self.mapping(path)

    def refuse_magic(self, event: Any, path: paths.Path) -> None:
        if event.anchor:
            problem = f"anchors and aliases are not read: found '{event.anchor}'"
            raise self.error(problem, event, path, hint="write it out, or use `stages:`, which inherit the top level")
        if getattr(event, "tag", None) is not None:
            raise self.error(f"tags are not read: found '{event.tag}'", event, path)

    def list(self, path: paths.Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: paths.Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            if key in entries:
                first = self.lines[(*path, key)]
                raise self.error(f"the key '{key}' stands here already, on line {first}", event, (*path, key))
            entries[key] = self.value(next(self.events), (*path, key))
        return entries

    def key(self, event: Any, path: paths.Path) -> str:
        self.refuse_magic(event, path)
        key = self.scalar(event, path) if isinstance(event, yaml.ScalarEvent) else None
        if not isinstance(key, str):
            raise self.error("this key is no text", event, path, hint="put it in quotes")
        return key

    def scalar(self, event: yaml.ScalarEvent, path: paths.Path) -> Any:
        text = event.value
        if bad := next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), None):
            raise self.error(f"the character {bad!r} is no text", event, path)
        if not event.implicit[0] or is_text(text):  # the first: it is quoted, or a block
            return text
        value = plain(text) if len(text) <= 30 else math.nan
        if isinstance(value, float) and not math.isfinite(value):
            problem = "has too many digits" if len(text) > 30 else "is no finite number"
            raise self.error(f"{short(text)} {problem}", event, path)
        return value

    def error(self, problem: str, event: Any, path: paths.Path, hint: str = "") -> RecipeError:
        place = f"{self.source} line {event.start_mark.line + 1}"
        return RecipeError(problem, where=f"{place}, {paths.spell(path)}" if path else place, hint=hint)
