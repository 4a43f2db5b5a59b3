"""YAML of recipes: the 1.2 core schema, strict.

PyYAML's own loaders take ``1e-6`` for a string, ``no`` for false, ``1:30`` for ninety and ``010`` for eight. The second
of two equal keys wins, and tags and aliases are followed. Here ``1e-6`` and ``1E5`` are numbers, ``010`` is ten, ``no``
and ``1:30`` are strings. Duplicate keys, tags, anchors, several documents and non-finite numbers are errors. Only
PyYAML's parser is used (text → events); :class:`Reader` builds the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlm_plugins.errors import RecipeError, expected, nearest_file, short
from rlm_plugins.recipe import paths

_CONSTANTS = dict.fromkeys(("", "~", "null", "Null", "NULL")) | {
    name: name.lower() == "true" for name in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def is_text(text: str) -> bool:
    """Return True if an unquoted scalar is a string in YAML 1.2.

    >>> [is_text(x) for x in ("no", "1:30", "1_000", "1e-6", "010", "~")]
    [True, True, True, False, False, False]
    """
    return text not in _CONSTANTS and not _WHOLE.fullmatch(text) and not _NUMBER.fullmatch(text)


def plain(text: str) -> Any:
    """Return the value of an unquoted scalar in YAML 1.2.

    >>> [plain(x) for x in ("1e-6", "010", "0xFF", "no", "true", "~")]
    [1e-06, 10, 255, 'no', True, None]
    """
    if is_text(text) or text in _CONSTANTS:
        return _CONSTANTS.get(text, text)
    if _WHOLE.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.replace(".", "") if text[-1] in "fFnN" else text)


def dump(data: Any) -> str:
    """Return `data` as YAML that :mod:`rlm_plugins.recipe.yaml_strict` loads as the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, without anchors, and with quotes around strings that `plain` takes for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if is_text(text) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


MAX_DEPTH = 20
"""Largest depth of mappings and lists."""
MAX_VALUES = 10_000
"""Largest number of values in a recipe; parsing them takes a fifth of a second."""


@dataclass(frozen=True)
class Document:
    """Data of a YAML text (mappings, lists, scalars), and address of every value → its line, from 1."""

    data: Any
    lines: dict[paths.Path, int]


@dataclass
class Reader:
    """Builder of values from the parser's events; it stops at the first that a recipe may not contain."""

    text: str
    source: str
    lines: dict[paths.Path, int] = field(default_factory=dict)

    def document(self) -> Document:
        """Return the only document of the text."""
        self.events: Iterator[Any] = yaml.parse(self.text, Loader=yaml.SafeLoader)
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return Document(None, {})
        data = self.value(next(self.events), ())
        next(self.events)
        end = next(self.events)
        if not isinstance(end, yaml.StreamEndEvent):
            raise self.error("a second document begins here", end, (), hint="a recipe is one document")
        return Document(data, self.lines)

    def value(self, event: Any, path: paths.Path) -> Any:
        """Return the value that begins with `event`."""
        self.check_plain(event, path)
        if len(path) >= MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            raise self.error(f"more than {MAX_DEPTH} levels deep", event, ())
        if len(self.lines) >= MAX_VALUES:
            raise self.error(f"more than {MAX_VALUES} values", event, ())
        self.lines[path] = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path)
        return self.list(path) if isinstance(event, yaml.SequenceStartEvent) else self.mapping(path)

    def check_plain(self, event: Any, path: paths.Path) -> None:
        """Raise for an anchor, an alias or a tag."""
        if event.anchor:
            problem = f"anchors and aliases are not supported, got '{event.anchor}'"
            raise self.error(problem, event, path, hint="write it out, or use `stages:`, which inherit the top level")
        if getattr(event, "tag", None) is not None:
            raise self.error(f"tags are not supported, got '{event.tag}'", event, path)

    def list(self, path: paths.Path) -> list[Any]:
        """Return the list at `path`."""
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: paths.Path) -> dict[str, Any]:
        """Return the mapping at `path`; its keys are distinct strings."""
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            if key in entries:
                first = self.lines[(*path, key)]
                raise self.error(f"duplicate key '{key}', first on line {first}", event, (*path, key))
            entries[key] = self.value(next(self.events), (*path, key))
        return entries

    def key(self, event: Any, path: paths.Path) -> str:
        """Return the key of a mapping."""
        self.check_plain(event, path)
        key = self.scalar(event, path) if isinstance(event, yaml.ScalarEvent) else None
        if not isinstance(key, str):
            raise self.error("expected a string as key", event, path, hint="put it in quotes")
        return key

    def scalar(self, event: yaml.ScalarEvent, path: paths.Path) -> Any:
        """Return a scalar: a string if it is quoted."""
        text = event.value
        if invalid := next((c for c in text if c == "\0" or "\ud800" <= c <= "\udfff"), None):
            raise self.error(f"unsupported character {invalid!r}", event, path)
        if not event.implicit[0] or is_text(text):  # the first: it is quoted, or a block
            return text
        value = plain(text) if len(text) <= 30 else math.nan
        if isinstance(value, float) and not math.isfinite(value):
            problem = "has too many digits" if len(text) > 30 else "is no finite number"
            raise self.error(f"{short(text)} {problem}", event, path)
        return value

    def error(self, problem: str, event: Any, path: paths.Path, hint: str = "") -> RecipeError:
        """Return an error with source, line and address."""
        where = f"{self.source} line {event.start_mark.line + 1}"
        return RecipeError(problem, where=f"{where}, {paths.format_path(path)}" if path else where, hint=hint)


MAX_BYTES = 256_000
"""Largest size of a recipe in bytes."""


def read(path: Path) -> Document:
    """Return the document of a recipe file, a mapping."""
    if not path.is_file():
        problem = "expected a file, got a folder, pipe or device" if path.exists() else "file not found"
        raise RecipeError(problem, where=str(path), hint="" if path.exists() else nearest_file(path, "*.y*ml"))
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
    """Return the only document in `text`."""
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
