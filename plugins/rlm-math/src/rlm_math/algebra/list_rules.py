"""Top-level structure of tokens, and rules for several answers: alternatives, lists, signs ±, operations on sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

from rlm_math.algebra.nodes import (
    CLOSING,
    INFINITY,
    MINUS_INFINITY,
    OPENING,
    Node,
    Token,
    UnreadableError,
    number,
    variables,
)
from rlm_math.algebra.parser import parse_expression
from rlm_math.algebra.values import (
    DOTS,
    REALS,
    Interval,
    Items,
    Named,
    Numbers,
    Value,
    as_numbers,
    as_solution,
    combined,
    listed,
    without,
)

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


MAX_SIGNS = 3
"""Signs ± of one answer."""


def prose(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse formulas with words between them: the words before a formula are its name."""
    outside = [token for token, depth in with_depth(tokens) if depth == 0]
    is_named = any(one.kind == "word" and (two.kind == "number" or two.text == ":") for one, two in pairwise(outside))
    if not is_named and not any(each.kind == "text" or is_mark(each, "if", "\\leftrightarrow") for each in outside):
        return None
    parts: list[tuple[str, list[Token]]] = [("", [])]
    for token, depth in with_depth(tokens):
        is_first = not parts[-1][1] or is_mark(parts[-1][1][-1], ",", ";", ".")
        is_word = token.kind == "text" or (token.kind == "word" and is_first and ":" not in token.text)
        if depth or not (is_word or is_mark(token, "if", "\\leftrightarrow")):
            parts[-1][1].append(token)
        elif parts[-1][1]:
            parts.append((token.text, []))
        else:
            parts[-1] = (f"{parts[-1][0]} {token.text}", [])
    items = [Named(words.strip().lower(), parse(plain)) for words, each in parts if (plain := _without_marks(each))]
    return Items("prose", (*items, Named(parts[-1][0], DOTS)) if not parts[-1][1] else tuple(items), "")


def _without_marks(tokens: Tokens) -> Tokens:
    marks = [is_mark(token, ",", ";", ".", ":") for token in tokens]
    start = marks.index(False) if False in marks else len(marks)
    return tokens[start : len(marks) - marks[::-1].index(False)] if start < len(marks) else []


def alternatives(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse "… or …" and "… and …": sets of numbers are joined, other answers are listed."""
    for word, kind in (("or", "union"), ("and", "intersection")):
        parts = split(tokens, word)
        if len(parts) > 1:
            values = [parse(_without_comma(part)) for part in parts]
            if solutions := _solutions(values):
                return Items("", tuple(solutions), "")
            if word == "or" and any(map(_is_interval, values)):
                values = [as_numbers(value) or value for value in values]
            if any(isinstance(value, Numbers) for value in values):
                values = [as_solution(value) for value in values]
            sets = [as_numbers(value) for value in values]
            if all(isinstance(value, Numbers) for value in values):
                return combined(kind, sets)
            names = {value.name for value in values if isinstance(value, Named)}
            is_open = len(names) > 1 or all(isinstance(value, Node) and value.op == "symbol" for value in values)
            return Items("", tuple(listed(values)), "or" if word == "or" and is_open else "")
    return None


def _is_interval(value: Value) -> bool:
    """Return True for two ends in brackets of two kinds, or with an infinite one: no point."""
    if not isinstance(value, Items) or value.opened not in ("(", "[") or len(value.items) != 2:
        return False
    return (value.opened, value.closed) in (("(", "]"), ("[", ")")) or any(
        item in (INFINITY, MINUS_INFINITY) for item in value.items
    )


def _solutions(values: list[Value]) -> list[Value]:
    """Return ``x=1, y=2`` and ``x=3, y=4`` as tuples in the order of the names; none for anything else."""
    names, solutions = set(), list[Value]()
    for value in values:
        items = value.items if isinstance(value, Items) and not value.opened else ()
        named = sorted((item for item in items if isinstance(item, Named)), key=lambda item: item.name)
        names.add(tuple(item.name for item in named))
        if len(named) < 2 or len(named) < len(items) or len({item.name for item in named}) < len(named):
            return []
        solutions.append(Items("(", tuple(item.value for item in named), ")"))
    return solutions if len(names) == 1 else []


def _without_comma(tokens: Tokens) -> Tokens:
    return tokens[:-1] if tokens and is_mark(tokens[-1], ",") else tokens


def comma_list(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse answers separated by commas or semicolons; excluded values (x ≠ 0, 1) are joined."""
    parts = split(tokens, ";")
    if len(parts) > 1 and (solutions := _solutions([parse(part) for part in parts])):
        return Items("", tuple(solutions), "")
    parts = split(tokens, ",", ";")
    if len(parts) == 1:
        return None
    values = listed([parse(part) for part in parts])
    if contains_mark(parts[0], "\\neq") and all(contains_mark(each, "\\neq") or kinds_of(each) == [] for each in parts):
        name = getattr(values[0], "variable", "")  # x ≠ 0, 1 excludes both
        excluded = [Numbers(without(each), name) if isinstance(each, Node) else as_numbers(each) for each in values]
        return combined("intersection", excluded)
    is_restricted = sum(not contains_mark(each, "\\neq") for each in parts) == 1 and len(values) == len(parts)
    if is_restricted and len({value.variable if isinstance(value, Numbers) else "" for value in values}) == 1:
        return combined("intersection", [as_numbers(value) for value in values])  # x > 0, x ≠ 1
    return _without_reals(values)


def _without_reals(values: list[Value]) -> Value:
    names = [value.variable if isinstance(value, Numbers) else "" for value in values]
    if len(values) == 2 and names[0] == names[1] != "" and Numbers(REALS, names[0]) in values:
        return combined("intersection", [as_numbers(value) for value in values])
    return Items("", tuple(values), "")


def ratio(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse ``1:\\sqrt{3}:2``, which is equal to no multiple of itself."""
    parts = split(tokens, ":")
    if len(parts) == 1 or len(split(tokens, *RELATIONS)) > 1:
        return None
    terms = [parse(part) for part in parts]
    return Items(":", tuple(terms), "") if all(isinstance(term, Node) for term in terms) else None


def plus_minus(tokens: Tokens, parse: Parse) -> Value | None:
    """Expand ± into the answers that it abbreviates. With ∓ all signs belong together, else each is free.

    The items of a set are expanded one by one.
    """
    if not has_signs(tokens) or len(split(tokens, *RELATIONS)) > 1:
        return None
    return None if is_mark(tokens[0], "\\{") and is_enclosed(tokens) else with_each_sign(tokens, parse)


def has_signs(tokens: Tokens) -> bool:
    """Return True if ± or ∓ occurs."""
    return any(is_mark(token, "\\pm", "\\mp") for token in tokens)


def with_each_sign(tokens: Tokens, parse: Parse) -> Items:
    """Return the list of what the tokens are with each choice of the signs."""
    places = [index for index, token in enumerate(tokens) if is_mark(token, "\\pm", "\\mp")]
    if len(places) > MAX_SIGNS:
        raise UnreadableError("too many signs ±")
    versions = []
    for signs in product("+-", repeat=len(places)):
        chosen = dict(zip(places, signs, strict=True))
        versions.append([Token("mark", chosen[i]) if i in chosen else token for i, token in enumerate(tokens)])
    return Items("", tuple(map(parse, versions)), "")


def set_operation(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse a union, an intersection, a difference, or the real numbers."""
    for operator, kind in SET_OPERATIONS.items():
        parts = split(tokens, operator)
        if len(parts) > 1 and split(tokens, *RELATIONS, "\\in") == [[*tokens]]:
            values = [parse(part) for part in parts]
            return combined(kind, [as_numbers(value) for value in values])
    if is_mark(tokens[0], "\\mathbb{R}") and len(tokens) > 2 and is_mark(tokens[1], "-"):
        return combined("difference", [Numbers(REALS), as_numbers(parse(tokens[2:]))])
    if not is_mark(tokens[0], "\\mathbb{R}"):
        return None
    sign = "".join(token.text for token in tokens[1:]).strip("^_{}").replace("\\gt0", "+").replace("\\lt0", "-")
    if sign in ("+", "-"):
        low, high = (number(0), INFINITY) if sign == "+" else (MINUS_INFINITY, number(0))
        return Numbers(Interval(low, high, has_low=False, has_high=False))
    return Numbers(REALS) if len(tokens) == 1 else None
