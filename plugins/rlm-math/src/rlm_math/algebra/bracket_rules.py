"""Rules for what stands in brackets: sets, tuples, intervals, vectors and matrices."""

from __future__ import annotations

from collections.abc import Iterator

from rlm_math.algebra.list_rules import (
    RELATIONS,
    SET_OPERATIONS,
    Parse,
    Tokens,
    is_enclosed,
    is_mark,
    lone_name,
    split,
    with_depth,
)
from rlm_math.algebra.nodes import Node, Token, UnreadableError, number
from rlm_math.algebra.parser import parse_expression
from rlm_math.algebra.values import (
    REALS,
    Items,
    Matrix,
    Named,
    Numbers,
    Value,
    as_numbers,
    as_solution,
    combined,
    listed,
)

_OTHERWISE = Node("symbol", value="otherwise")
_VECTORS = {"\\langle": "<", "\\rangle": ">"}


def brackets(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse a set, a tuple, an interval, a vector or a matrix."""
    if len(tokens) == 1 and is_mark(tokens[0], "\\emptyset"):
        return Items("{", (), "}")
    if len(tokens) == 1 and tokens[0].text.startswith("\\mathbb"):
        return Node("symbol", value=tokens[0].text)
    if _is_point(tokens):
        return Named(tokens[0].text, parse(tokens[1:]))
    if not is_enclosed(tokens) or len(tokens) < 2:
        return _combination(tokens, parse)
    if is_mark(tokens[0], "\\begin"):
        return _piecewise(tokens, parse) if tokens[1].text == "cases" == tokens[-2].text else _matrix(tokens, parse)
    opened, closed, inside = tokens[0].text, tokens[-1].text, tokens[1:-1]
    if opened == "\\{":
        return _set(inside, parse)
    parts = split(inside, ",", ";")
    if len(parts) == 1:
        return _grouped(opened, inside, parse)
    if opened in _VECTORS or opened in "([":
        items = tuple(parse(part) for part in parts)
        return Items(_VECTORS.get(opened, opened), items, _VECTORS.get(closed, closed))
    return parse(inside) if opened == "{" else None


def _is_point(tokens: Tokens) -> bool:
    """Return True for coordinates with the name of a point, such as P(1,2)."""
    is_named = len(tokens) > 2 and tokens[0].kind == "letter" and tokens[0].text.isupper() and is_mark(tokens[1], "(")
    is_named = is_named and is_mark(tokens[-1], ")")
    return is_named and is_enclosed(tokens[1:]) and len(split(tokens[2:-1], ",")) > 1


def _grouped(opened: str, inside: Tokens, parse: Parse) -> Value | None:
    """Parse what brackets group although it is no expression, such as (x > 2); None for an expression."""
    if any(is_mark(token, "\\begin") for token in inside) and opened in ("(", "["):
        return parse(inside)  # brackets of an array
    if (
        opened == "["
        and inside[-1].kind == "number"
        and (len(inside) == 1 or (len(inside) == 2 and is_mark(inside[0], "-")))
    ):
        return Items("[", (parse(inside),), "]")  # a list of one; [x] has other readings
    is_plain = opened == "{" or len(split(inside, *RELATIONS, *SET_OPERATIONS, "or", "\\pm")) > 1
    return parse(inside) if opened in ("(", "{") and inside and is_plain else None


def _set(inside: Tokens, parse: Parse) -> Value:
    parts = split(inside, "\\mid", "|", ":")
    if len(parts) == 2 and (lone_name(parts[0]) or len(split(parts[0], "\\in")) == 2):
        conditions = [parse(part) for part in _conditions(parts[1])]
        domain = [] if lone_name(parts[0]) else [parse(parts[0])]
        elements = combined("intersection", [as_numbers(each) for each in (*domain, *conditions)])
        if elements.variable not in ("", lone_name(split(parts[0], "\\in")[0])):
            raise UnreadableError("a condition on another variable")
        return Numbers(elements.elements)  # {x | x > 2} is {y | y > 2}
    values = listed([parse(part) for part in split(inside, ",", ";")])
    return Items("{", tuple(values), "}")


def _conditions(tokens: Tokens) -> list[Tokens]:
    """Return ``x > 0, x \\neq 1`` as two conditions; ``x \\neq 0, 1`` is one."""
    parts = split(tokens, ",")
    return parts if all(len(split(part, *RELATIONS, "\\in")) > 1 for part in parts) else [tokens]


def _combination(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse a sum of vectors or matrices with factors, such as the line ``p + t v``; None for anything else."""
    if not any(is_mark(token, "\\begin", "\\langle", ",") for token in tokens):
        return None
    terms = [part for part in _terms(tokens) if part]
    values = [_scaled(term, parse) for term in terms]
    if not values or None in values:
        return None
    first, shapes = values[0], {_shape(value) for value in values if value is not None}
    if len(shapes) > 1 or first is None:
        raise UnreadableError("a sum of vectors of different sizes")
    columns = zip(*(_cells(value) for value in values if value is not None), strict=True)
    return _with_cells(first, [Node("+", each) if len(each) > 1 else each[0] for each in columns])


def _terms(tokens: Tokens) -> list[Tokens]:
    terms: list[list[Token]] = [[]]
    for token, depth in with_depth(tokens):
        if depth == 0 and is_mark(token, "+", "-") and terms[-1] and not is_mark(terms[-1][-1], "^", "*"):
            terms.append([])
        terms[-1].append(token)
    return list(terms)


def _scaled(term: Tokens, parse: Parse) -> Items | Matrix | None:
    """Parse one vector or matrix with factors before and after it; None for anything else."""
    sign = number(-1) if is_mark(term[0], "-") else number(1)
    term = term[1:] if is_mark(term[0], "+", "-") else term
    for start, end in _groups(term):
        factors = [_without_stars(term[:start]), _without_stars(term[end:])]
        try:
            value = parse(term[start:end]) if any(factors) or len(term) < end + 1 else None
            scale = [parse_expression(factor) for factor in factors if factor]
        except UnreadableError:
            continue
        if not isinstance(value, (Items, Matrix)) or not _is_vector(value):
            continue
        scale = [sign, *scale] if sign != number(1) else scale
        cells = _cells(value)
        for factor in scale:
            cells = [Node("*", (factor, cell)) for cell in cells]
        return _with_cells(value, cells)
    return None


def _groups(term: Tokens) -> Iterator[tuple[int, int]]:
    start = 0
    for index, (token, depth) in enumerate(with_depth(term)):
        if depth == 1 and is_mark(token, "(", "[", "\\langle", "\\begin"):
            start = index
        if depth == 0 and is_mark(token, ")", "]", "\\rangle", "\\end"):
            has_name = token.text == "\\end" and index + 1 < len(term) and term[index + 1].kind == "word"
            yield start, index + 1 + has_name


def _without_stars(tokens: Tokens) -> Tokens:
    tokens = tokens[1:] if tokens and is_mark(tokens[0], "*") else tokens
    return tokens[:-1] if tokens and is_mark(tokens[-1], "*") else tokens


def _is_vector(value: Items | Matrix) -> bool:
    if isinstance(value, Matrix):
        return not value.bars and all(isinstance(cell, Node) for row in value.rows for cell in row)
    return value.opened in ("(", "<", "[") and len(value.items) > 1 and all(isinstance(x, Node) for x in value.items)


def _cells(value: Items | Matrix) -> list[Node]:
    cells = value.items if isinstance(value, Items) else [cell for row in value.rows for cell in row]
    return [cell for cell in cells if isinstance(cell, Node)]


def _shape(value: Items | Matrix) -> tuple[int, ...]:
    return (len(value.items),) if isinstance(value, Items) else (len(value.rows), len(value.rows[0]))


def _with_cells(value: Items | Matrix, cells: list[Node]) -> Items | Matrix:
    if isinstance(value, Items):
        return Items(value.opened, tuple(cells), value.closed)
    width = len(value.rows[0])
    return Matrix(tuple(tuple(cells[i : i + width]) for i in range(0, len(cells), width)))


def _piecewise(tokens: Tokens, parse: Parse) -> Items:
    pairs = []
    for row in split(tokens[2:-2], "\\\\"):
        cells = [_plain_cell(cell) for cell in split(row, "&") if not (len(cell) == 1 and is_mark(cell[0], "if"))]
        if any(cells):
            pairs.append(cells)
    if pairs and all(len(cells) == 1 for cells in pairs):  # a system of equations
        return Items("", tuple(listed([parse(cell) for (cell,) in pairs])), "")
    if any(len(cells) != 2 or not all(cells) for cells in pairs):
        raise UnreadableError("cases without conditions")
    conditions = _without_otherwise([as_solution(parse(condition)) for _, condition in pairs])
    values = [parse(value) for value, _ in pairs]
    return Items("cases", tuple(Items("(", pair, ")") for pair in zip(values, conditions, strict=True)), "")


def _without_otherwise(conditions: list[Value]) -> list[Value]:
    """Return the conditions with a last "otherwise" as the numbers that fulfill none of the others."""
    others = [each for each in conditions[:-1] if isinstance(each, Numbers)]
    if not others or conditions[-1] != _OTHERWISE or len(others) < len(conditions) - 1:
        return conditions
    is_of_one = len({each.variable for each in others}) == 1
    return [*others, combined("difference", [Numbers(REALS), *others])] if is_of_one else conditions


def _plain_cell(cell: Tokens) -> Tokens:
    if cell and is_mark(cell[0], "if"):
        cell = cell[1:]
    return cell[:-1] if cell and is_mark(cell[-1], ",", ".", ";") else cell


def _matrix(tokens: Tokens, parse: Parse) -> Matrix:
    start = 2
    if tokens[1].text == "array":  # the format of its columns
        start = next((i for i, token in enumerate(tokens) if is_mark(token, "}")), 1) + 1
    rows = [row for row in split(tokens[start:-2], "\\\\") if row]
    cells = tuple(tuple(parse(cell) for cell in split(row, "&")) for row in rows)
    if not cells or len({len(row) for row in cells}) > 1:
        raise UnreadableError("a matrix with rows of different length")
    return Matrix(cells, tokens[1].text if tokens[1].text[0] in "vV" else "")


_MARKS = {"T", "\\top", "\\intercal"}


def transposed(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse ``(1,2)^T`` and ``A^{\\top}`` for a vector or matrix that is written out; None for anything else."""
    texts = [token.text for token in tokens]
    size = 4 if texts[-1] == "}" else 2
    exponent = texts[-size:]
    if exponent[0] != "^" or not _MARKS & {*exponent[1:]} or not is_enclosed(tokens[:-size]):
        return None
    value = parse(tokens[:-size])
    if isinstance(value, Matrix) and not value.bars:
        return Matrix(tuple(zip(*value.rows, strict=True)))
    if isinstance(value, Items) and value.opened in ("(", "[", "<"):
        return Items("(", value.items, ")")  # `are_same` takes a column for the tuple of its entries
    return None
