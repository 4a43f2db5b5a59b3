"""The program of a completion: which of its fenced blocks, and what it needs of earlier ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from textwrap import dedent
from typing import Literal

from rlm_coding.cases import BadTests, program_names

Block = Literal["last", "first", "only"]
Unfenced = Literal["wrong", "whole"]

_FENCE = re.compile(r"^[ \t]*(?:[-*+] +|\d+[.)] +)?(```+|~~~+)[ \t]*([\w+.-]*)[^\n]*$", re.M)
_PYTHON = re.compile(r"py(thon)?[\d.]*")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def program(text: str, block: Block = "last", unfenced: Unfenced = "wrong", names: Collection[str] = ()) -> str | None:
    """Return the final program of a completion, after its thinking; None if there is none.

    Where a block defines one of the tested `names`, the others are no programs: examples of its use, or imports and
    helpers, of which the program gets those that it uses. An unclosed block was truncated: no block counts then.

    >>> program("<think>```python\\n1\\n```</think>so\\n```python\\nx = 2\\n```\\nit is")
    'x = 2\\n'
    >>> program("```\\nx = 1\\n```\\n```python\\nx = 2"), program("x = 1"), program("x = 1", unfenced="whole")
    (None, None, 'x = 1')
    >>> program("```python\\nimport math\\n```\\n```python\\nf = math.sin\\n```\\n```python\\nf(1)\\n```", names=["f"])
    'import math\\nf = math.sin\\n'
    """
    answer_part = after_thinking(text)
    if answer_part is None:
        return None
    blocks, all_closed = _blocks(answer_part)
    if not all_closed:
        return None
    if not blocks:
        return answer_part if unfenced == "whole" and not _FENCE.search(answer_part) and answer_part.strip() else None
    programs = _programs(blocks, names)
    if block == "only" and len(programs) > 1:
        return None
    chosen = programs[0 if block == "first" else -1]
    return "".join(_needed(blocks[chosen][1], [source for _, source in blocks[:chosen]])) + blocks[chosen][1]


def after_thinking(text: str) -> str | None:
    """Return the text after the thinking; None if the thinking is not closed.

    >>> after_thinking("<think>a</think>b"), after_thinking("b"), after_thinking("<think>a")
    ('b', 'b', None)
    """
    _, closed, after = text.rpartition("</think>")
    answer_part = after if closed else text
    return None if "<think>" in answer_part else answer_part


def _blocks(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Return language and source of the closed blocks that may be Python, and True if the last block is closed.

    A fence closes with at least as many marks of its kind.
    """
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark
        elif not mark[2] and mark[1].startswith(opened[1]):  # a fence with a language inside a block is part of it
            blocks.append((opened[2].lower(), dedent(text[opened.end() + 1 : mark.start()]).lstrip("\ufeff")))
            opened = None
    return [each for each in blocks if not each[0] or _PYTHON.fullmatch(each[0])], opened is None


def _programs(blocks: Sequence[tuple[str, str]], names: Collection[str]) -> list[int]:
    """Return the numbers of the blocks that are programs; without a language a block counts if no other does."""
    tagged = [number for number, (language, _) in enumerate(blocks) if language]
    for numbers in (tagged, range(len(blocks))):
        if defining := [number for number in numbers if {*names} & {*_bound(blocks[number][1], names)}]:
            return defining
    return tagged or [*range(len(blocks))]


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bound(source: str, names: Collection[str]) -> Iterator[str]:
    """Yield the names that a block binds; of a block that is not Python, those of `names` that it means to define."""
    if (tree := _tree(source)) is not None:
        yield from (*_names(tree), *_methods(tree))
    else:
        yield from (name for name in names if re.search(rf"^(async +)?(def|class) +{re.escape(name)}\b", source, re.M))


def _methods(tree: ast.Module) -> Iterator[str]:
    """Yield the methods of a class ``Solution``, as LeetCode has it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds outside of functions and classes; ``f = f(1)`` uses one."""
    if isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
        yield from (x.id for y in targets for x in ast.walk(y) if isinstance(x, ast.Name) and x.id not in used)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names(child)


def _needed(source: str, earlier: Sequence[str]) -> list[str]:
    """Return the imports and definitions of earlier blocks that a program uses and does not have."""
    statements = [node for each in earlier if (tree := _tree(each)) for node in tree.body]
    missing, kept = _free(source), list[str]()
    for node in reversed(statements):
        if missing & {*_names(node)}:
            kept.insert(0, f"{ast.unparse(node)}\n")
            missing = (missing - {*_names(node)}) | _free(kept[0])
    return kept


def _free(source: str) -> set[str]:
    """Return the names that a source uses and does not bind; inside of a method its name is that of a function."""
    try:
        free = {name for names in program_names([source]) for name in names}
    except BadTests:
        return set()
    tree = ast.parse(source)
    return free | {*_methods(tree)} & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
