"""Top-level structure of tokens: separators outside brackets, enclosing brackets, relations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rlm_math.algebra.nodes import INFINITY, UnreadableError, variables
from rlm_math.algebra.parser import parse_expression
from rlm_math.algebra.tokens import CLOSING, OPENING, Token
from rlm_math.algebra.values import Value

RELATIONS = {"=": "=", "\\neq": "!=", "\\lt": "<", "\\gt": ">", "\\leq": "<=", "\\geq": ">="}
"""Mark → kind of relation."""
SET_OPERATIONS = {"\\cup": "union", "\\cap": "intersection", "\\setminus": "difference"}
"""Mark → kind of set operation."""
Tokens = Sequence[Token]
Parse = Callable[[Tokens], Value]
"""The parser of answers, which rules call for their parts."""


def split(tokens: Tokens, *separators: str) -> list[Tokens]:
    """Split tokens at separators outside all brackets."""
    parts: list[list[Token]] = [[]]
    for token, depth in with_depth(tokens):
        if depth == 0 and is_mark(token, *separators):
            parts.append([])
        else:
            parts[-1].append(token)
    return list(parts)


def with_depth(tokens: Tokens) -> Iterator[tuple[Token, int]]:
    """Yield each token with the number of brackets that are open after it."""
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += (token.text in OPENING) - (token.text in CLOSING)
        yield token, depth


def is_mark(token: Token, *texts: str) -> bool:
    """Return True for one of some marks."""
    return token.kind == "mark" and token.text in texts


def contains_mark(tokens: Tokens, text: str) -> bool:
    """Return True if a mark occurs."""
    return any(is_mark(token, text) for token in tokens)


def is_enclosed(tokens: Tokens) -> bool:
    """Return True if the first bracket closes at the last token."""
    closed = [index for index, (_, depth) in enumerate(with_depth(tokens)) if depth == 0]
    return closed[:1] == [len(tokens) - 1]


def kinds_of(tokens: Tokens) -> list[str]:
    """Return the kinds of the relations outside all brackets."""
    return [RELATIONS[token.text] for token, depth in with_depth(tokens) if depth == 0 and is_mark(token, *RELATIONS)]


def lone_name(tokens: Tokens) -> str:
    """Return the name of a variable that is all there is; empty for anything else."""
    try:
        node = parse_expression(tokens)
    except UnreadableError:
        return ""
    if node.op == "apply" and node.args[0].op == "symbol":
        return f"{node.value}({node.args[0].value})"
    is_name = node.op == "symbol" and node.value in variables(node) - {INFINITY.value}
    return str(node.value) if is_name else ""
