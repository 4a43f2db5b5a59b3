"""Plain data from the events of PyYAML's parser: no tags, anchors or duplicate keys, and a line for every value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import short
from rlm_plugins.recipe import paths
from rlm_plugins.recipe.yaml_scalars import is_text, plain

MAX_DEPTH = 20
"""Largest depth of mappings and lists."""
MAX_VALUES = 10_000
"""Largest number of values in a recipe; parsing them takes a fifth of a second."""


@dataclass(frozen=True)
class Document:
    """Data of a YAML text, with lines.

    Args:
        data: Mappings (with text keys), lists, text, numbers, booleans, None.
        lines: Address of every value → its line, from 1.
    """

    data: Any
    lines: dict[paths.Path, int]


@dataclass
class Reader:
    """Builder of values from the parser's events; it stops at the first that a recipe may not contain.

    Args:
        text: YAML.
        source: Its name in errors.
        lines: Address of every value → its line, filled while parsing.
    """

    text: str
    source: str
    lines: dict[paths.Path, int] = field(default_factory=dict)

    def document(self) -> Document:
        """Return the only document of the text.

        Raises:
            RecipeError: Something a recipe may not contain.
            yaml.YAMLError: Invalid YAML.
        """
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
