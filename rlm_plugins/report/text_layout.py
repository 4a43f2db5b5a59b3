"""Layout of reports for a terminal: sections of tables and paragraphs under titles, and tables of a given width."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any


def report(head: str, sections: Mapping[str, str | Iterable[Sequence[str]]]) -> str:
    """Return a report: its head, then each section that is not empty under its title.

    >>> print(report("clip", {"meaning": "A clip.", "pitfalls": "", "knobs": [("epsilon", "0.2"), ("delta", "null")]}))
    clip
    <BLANKLINE>
    meaning
      A clip.
    <BLANKLINE>
    knobs
      epsilon  0.2
      delta    null
    """
    texts = [indented(body) if isinstance(body, str) else columns(body) for body in sections.values()]
    return head + "".join(map(titled, sections, texts))


def titled(title: str, text: str) -> str:
    """Return `text` under its title, after a blank line; empty if there is no text."""
    return f"\n\n{title}\n{text}" if text else ""


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Return lines of aligned columns, neither cut off nor wrapped, so that the text can be searched.

    >>> print(columns([("a", "one"), ("bcd", "two")], indent=""))
    a    one
    bcd  two
    """
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(f"{indent}{_line(row, widths)}".rstrip() for row in table)


def fitted(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return each line as aligned columns, together no wider than `width` if words allow it.

    Cells are wrapped at blanks and, if a word is too long, after _ and =. The first column keeps its width.

    >>> print("\\n".join(fitted([("grpo", "group_relative scale=none", "token"), ("a", "b", "")], 27)))
    grpo  group_relative  token
          scale=none
    a     b
    """
    table = list(zip(*rows, strict=True))
    widths = [_longest(cell.split("\n") for cell in column) for column in table]
    minimum = [widths[0], *(_longest(map(_fragments, column)) for column in table[1:])]
    while sum(widths) + 2 * (len(widths) - 1) > width and widths != minimum:
        widest = max((i for i in range(len(widths)) if widths[i] > minimum[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    wrapped = [zip_longest(*map(_wrapped, row, widths), fillvalue="") for row in rows]
    return ["\n".join(_line(line, widths).rstrip() for line in lines) for lines in wrapped]


def _longest(texts: Iterable[Iterable[str]]) -> int:
    return max(map(len, chain.from_iterable(texts)))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(map(str.ljust, cells, widths))


def _wrapped(cell: str, width: int) -> list[str]:
    lines: list[str] = []
    for paragraph in cell.split("\n"):
        lines.append("")
        for word in paragraph.split(" "):
            fragments = [word] if len(word) <= width else _fragments(word)
            for n, fragment in enumerate(fragments):
                gap = " " if lines[-1] and not n else ""
                if len(lines[-1] + gap + fragment) <= width or not lines[-1]:
                    lines[-1] += gap + fragment
                else:
                    lines.append(fragment)
    return lines


def _fragments(cell: str) -> list[str]:
    return re.findall(r"[^\s_=]*[_=]+|[^\s_=]+", cell) or [""]


def indented(text: str, by: str = "  ") -> str:
    """Return `text` with every line indented."""
    return "\n".join(f"{by}{line}".rstrip() for line in text.splitlines())


def printable(text: str) -> str:
    r"""Return a text with control characters escaped: a name could otherwise erase its own line.

    >>> printable("a\x1b[2Kb")
    'a\\x1b[2Kb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(value: Any) -> str:
    """Return a value as a recipe spells it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short(file: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
