"""Markdown of the generated pages: prose of docstrings, tables, links, and a curve as SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import mean

from rlm_lab.algorithms import ARXIV

_CODE = re.compile(r"``[^`]+``|`[^`\n]+`")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
WIDTH, HEIGHT, MARGIN = 480, 200, 34


def page_name(full_name: str) -> str:
    """Return the full name of a part as the name of a page.

    >>> page_name("builtin/clip"), page_name("process/prime")
    ('clip', 'process-prime')
    """
    return full_name.removeprefix("builtin/").replace("/", "-").replace("@", "-at-")


def page(title: str, *sections: str) -> str:
    """Return a page: its title and its sections, without the empty ones."""
    return "\n\n".join([f"# {title}", *filter(None, sections)]) + "\n"


def titled(sections: Mapping[str, str]) -> list[str]:
    """Return the sections that have a text, each under its heading."""
    return [f"## {title}\n\n{text}" for title, text in sections.items() if text]


def paper_numbers(text: str) -> list[str]:
    """Return the arXiv numbers in a text, each once.

    >>> paper_numbers("PPO, arXiv 1707.06347 eq. 7; 2503.14476 eq. 10; 1707.06347")
    ['1707.06347', '2503.14476']
    """
    return list(dict.fromkeys(re.findall(ARXIV, text)))


def papers_of(text: str) -> str:
    """Return links to the papers that a text names by their arXiv numbers."""
    return ", ".join(f"[arXiv {number}](https://arxiv.org/abs/{number})" for number in paper_numbers(text))


def link(text: str, path: str) -> str:
    """Return a link to a page of the site."""
    return f"[`{text}`](/{path})"


def prose(text: str) -> str:
    """Return the text of a docstring as Markdown: its symbols are no markup, its examples are blocks of code.

    >>> prose("a_b * c < d, ``x*y``")
    'a\\\\_b \\\\* c &lt; d, `x*y`'
    """
    blocks = re.split(r"\n\n(?=\S)", _ROLE.sub(r"`\1`", text).strip())
    return "\n\n".join(map(_block, blocks))


def _block(block: str) -> str:
    """Return one paragraph, and the indented or interactive example below it as code."""
    if block.startswith(">>>"):
        return code(block, "pycon")
    before, _, example = block.partition("\n\n    ")
    paragraph = _escaped(before.removesuffix("::") + (":" if before.endswith("::") else ""))
    return f"{paragraph}\n\n{code('    ' + example, 'python', dedent=True)}" if example else paragraph


def _escaped(text: str) -> str:
    """Return text with the characters of Markdown and HTML escaped outside of code."""
    parts, end = [], 0
    for span in _CODE.finditer(text):
        parts += [_plain(text[end : span.start()]), f"`{span[0].strip('`')}`"]
        end = span.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return re.sub(r"([\\*_\[\]#])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def code(text: str, language: str, dedent: bool = False) -> str:
    """Return a block of code; an equation may break over lines."""
    if language == "equation":
        return f'<pre class="equation">{text.replace("&", "&amp;").replace("<", "&lt;")}</pre>'
    lines = [line.removeprefix("    ") for line in text.splitlines()] if dedent else text.splitlines()
    return "\n".join([f"````{language}", *lines, "````"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *(map(cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def curve(seeds: Sequence[Sequence[Sequence[float]]], control: Sequence[Sequence[Sequence[float]]]) -> str:
    """Return the accuracy of each seed over the steps, and the mean of a control dashed, as SVG.

    Args:
        seeds: Per seed the points (step, accuracy from 0 to 1).
        control: The same of the control.
    """
    last = max(step for points in [*seeds, *control] for step, _ in points)
    means = [(points[0][0], mean(point[1] for point in points)) for points in zip(*control, strict=False)]
    levels = (0.0, 0.5, 1.0)
    shapes = [_line([(0, level), (last, level)], last, 'opacity=".2"') for level in levels]
    shapes += [_line(points, last, 'stroke-width="1.2"') for points in seeds]
    shapes += [_line(means, last, 'stroke-width="1.6" stroke-dasharray="5 4"')]
    shapes += [_label(MARGIN - 6, _y(level), f"{level:.0%}", "end") for level in levels]
    shapes += [_label(_x(step, last), HEIGHT - 8, f"{step:g}", "middle") for step in (0, last / 2, last)]
    box = f'viewBox="0 0 {WIDTH + 8} {HEIGHT}" role="img" aria-label="accuracy over steps"'
    return f'<svg class="curve" {box}>{"".join(shapes)}</svg>'


def _line(points: Sequence[Sequence[float]], last: float, style: str) -> str:
    places = " ".join(f"{_x(step, last):.1f},{_y(value):.1f}" for step, value in points)
    return f'<polyline points="{places}" fill="none" stroke="currentColor" {style}/>'


def _x(step: float, last: float) -> float:
    return MARGIN + (WIDTH - MARGIN) * step / last


def _y(value: float) -> float:
    return 10 + (HEIGHT - 40) * (1 - value)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y + 4:.1f}" font-size="11" fill="currentColor" text-anchor="{anchor}">{text}</text>'
