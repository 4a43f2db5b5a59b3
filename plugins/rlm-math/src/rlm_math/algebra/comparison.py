"""Comparison of two parsed answers."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import flint

from rlm_math.algebra.equality import are_equal
from rlm_math.algebra.evaluation import Evaluation, Rules, fold
from rlm_math.algebra.nodes import Node, UndefinedError, number, substitute, variables
from rlm_math.algebra.values import DOTS, Items, Matrix, Named, Numbers, Relation, Value, are_same_sets, as_numbers

MAX_UNORDERED = 40
"""Items of a list that are compared in any order, beside those that are written alike."""


def is_right(gold: Value, answer: Value, rules: Rules) -> bool:
    """Return True if an answer is the reference, where the set of one number and the ratio of two are numbers too."""
    if isinstance(gold, Items) and gold.opened == "[" and len(gold.items) == 1:
        gold = Items("{", gold.items, "}")
    gold, answer = map(_simplified, (gold, answer))
    return are_same(_only_item(gold, answer), _only_item(answer, gold), rules)


def are_same(gold: Value, answer: Value, rules: Rules) -> bool:
    """Return True if an answer is the reference in another notation."""
    gold, answer = map(_simplified, (gold, answer))
    if isinstance(gold, Items) and gold.opened == "prose":
        return _are_same_prose(gold, answer, rules)
    if isinstance(gold, Node) and isinstance(answer, Node):
        return are_equal(gold, _with_constant_of(gold, answer), rules)
    gold, answer = _in_notation_of(answer, gold), _in_notation_of(gold, answer)
    if isinstance(gold, Items) and isinstance(answer, Items):
        return _are_same_items(gold, answer, rules)
    if isinstance(gold, Numbers) or isinstance(answer, Numbers):
        return _are_same_numbers(gold, answer, rules)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _are_same_matrices(gold, answer, rules)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _are_same_named(gold, answer, rules)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return gold.kind == answer.kind and _are_proportional(gold, answer)
    return False


def _are_same_prose(gold: Items, answer: Value, rules: Rules) -> bool:
    """Compare formulas with words between them; an answer without words has the formulas alone, in their order."""
    named = [item for item in gold.items if isinstance(item, Named)]
    values = tuple(item.value for item in named if item.value != DOTS)
    if not isinstance(answer, Items) or answer.opened != "prose":
        is_denied = bool(_DENIALS & {*" ".join(item.name for item in named).split()})
        right = values[0] if len(values) == 1 else Items("(", values, ")")
        given = _in_order(answer) if isinstance(answer, Items) and len(values) > 1 else answer
        return bool(values) and not is_denied and are_same(right, given, rules)
    others = [item for item in answer.items if isinstance(item, Named)]
    return len(named) == len(others) and all(
        _are_same_words(one.name, two.name) and are_same(one.value, two.value, rules)
        for one, two in zip(named, others, strict=True)
    )


def _are_same_words(words: str, others: str) -> bool:
    """Return True for the same words but for articles, prepositions and abbreviations: ``min.`` for ``minimum at``."""
    first, second = ([word for word in each.split() if word not in _FUNCTION_WORDS] for each in (words, others))
    pairs = list(zip(first, second, strict=False))
    return len(first) == len(second) and all(
        a == b or (min(len(a), len(b)) > 2 and (a.startswith(b) or b.startswith(a))) for a, b in pairs
    )


_DENIALS = {"no", "not", "nor", "never", "neither", "none"}
_FUNCTION_WORDS = {*re.findall("[a-z]+", "a an the at in on of is are be has have for when if with and so then to")}


def _with_constant_of(gold: Node, answer: Node) -> Node:
    """Return an answer with the reference's names for constants of integration: c for C, C_1 for c_1."""
    names = [sorted({*variables(each)} - {*variables(other)}) for each, other in ((gold, answer), (answer, gold))]
    is_constant = gold.op == "+" and all(_CONSTANT.fullmatch(name) for each in names for name in each)
    if (
        not is_constant
        or len(names[0]) != len(names[1])
        or not all(map(_is_additive, names[0], [gold] * len(names[0])))
    ):
        return answer
    return substitute(answer, {old: Node("symbol", value=new) for new, old in zip(*names, strict=True)})


def _is_additive(name: str, node: Node) -> bool:
    """Return True for a constant with an index, or one that is a summand."""
    return "_" in name or Node("symbol", value=name) in node.args


_CONSTANT = re.compile(r"[CcKkA](?:_\d)?")


def _only_item(value: Value, other: Value) -> Value:
    """Return the element of a set of one, and the value of the ratio of two numbers, where `other` is a number."""
    if not isinstance(value, Items) or not isinstance(other.value if isinstance(other, Named) else other, Node):
        return value
    if value.opened == "{" and len(value.items) == 1:
        return _simplified(value.items[0])
    terms = tuple(item for item in value.items if isinstance(item, Node))
    return Node("/", terms) if value.opened == ":" and len(terms) == len(value.items) == 2 else value


def _simplified(value: Value) -> Value:
    """Return a rational expression as one number, and ``(x, y) = (1, 2)`` as its named parts."""
    if isinstance(value, Node):
        return _folded(value)
    if isinstance(value, Named) and value.name.startswith("(") and isinstance(value.value, Items):
        names = value.name.strip("()").split(",")
        if len(names) == len(value.value.items) and value.value.opened == "(":
            return Items("", tuple(map(Named, names, value.value.items)), "")
    if isinstance(value, Named) and isinstance(value.value, Items) and not value.value.opened:  # y = ±x
        return Items("", tuple(Named(value.name, item) for item in value.value.items), "")
    return value


def _folded(node: Node) -> Node:
    try:
        return fold(node)
    except UndefinedError:
        return node  # never equal to anything


def _in_notation_of(other: Value, value: Value) -> Value:
    """Return ``3k+1`` as a residue, and a sum of unit vectors as a tuple, if `other` is one."""
    node = value.value if isinstance(value, Named) else value
    names = sorted(variables(node)) if isinstance(node, Node) else []
    residue = other.value if isinstance(other, Named) else other
    is_residue = isinstance(residue, Items) and residue.opened == "mod" and len(names) == 1
    column = _as_column(other) if names and {*names} <= {*_UNIT_VECTORS} else None
    if not isinstance(node, Node) or not (is_residue or column):
        return value
    axes = names if column is None else _UNIT_VECTORS[: len(column.items)]
    zero = substitute(node, {name: number(0) for name in names})
    cells = [substitute(node, {name: number(int(name == axis)) for name in names}) for axis in axes]
    slopes = [Node("+", (cell, Node("-", (zero,)))) for cell in cells]
    terms = [Node("*", (slope, Node("symbol", value=axis))) for slope, axis in zip(slopes, axes, strict=True)]
    if not are_equal(node, Node("+", (zero, *terms))):
        return value
    if column is not None:
        return Items("(", tuple(slopes), ")") if are_equal(zero, number(0)) else value
    named = Items("mod", (Node("mod", (zero, slopes[0])), slopes[0]), "")
    return Named(value.name, named) if isinstance(value, Named) else named


_UNIT_VECTORS = ["vec:i", "vec:j", "vec:k"]


def _are_same_items(gold: Items, answer: Items, rules: Rules) -> bool:
    if _is_tuple(gold) and _is_assignment(answer):
        return _are_same_items(gold, _as_tuple(answer), rules)
    if _is_tuple(answer) and _is_assignment(gold):
        return _are_same_items(_as_tuple(gold), answer, rules)
    if _is_unordered(gold) != _is_unordered(answer) or (gold.closed == "or") != (answer.closed == "or"):
        return False
    if not any(isinstance(item, Named) for item in answer.items) and _has_several_names(gold):
        gold, answer = _in_order(gold), _in_order(answer)
    elif not any(isinstance(item, Named) for item in gold.items) and _is_assignment(answer):
        answer = Items("", tuple(item.value for item in answer.items if isinstance(item, Named)), "")
    elif _has_several_names(answer) and not any(isinstance(item, Named) for item in gold.items):
        return False
    if gold.opened == answer.opened == ":":
        return _are_same_ratios(gold, answer)
    if _is_unordered(gold):
        items, others = ([*each.items] for each in (gold, answer))
        if gold.opened == "{":
            items, others = _distinct(items, rules), _distinct(others, rules)
        elif answer.opened == "{" or all(isinstance(item, Items) for item in items):  # solutions may be repeated
            others = _distinct(others, rules)
        return _are_permuted(items, others, rules)
    brackets = [_brackets(each) for each in (gold, answer)]
    if brackets[0] != brackets[1] and rules.ends_count:
        return False
    if not rules.ordered:
        return _are_permuted([*gold.items], [*answer.items], rules)
    pairs = zip(gold.items, answer.items, strict=False)
    return len(gold.items) == len(answer.items) and all(are_same(a, b, rules) for a, b in pairs)


def _in_order(value: Items) -> Items:
    items = [item.value if isinstance(item, Named) else item for item in value.items]
    return Items("(", tuple(items), ")") if value.opened == "" else value


def _are_same_ratios(gold: Items, answer: Items) -> bool:
    terms = [[term for term in each.items if isinstance(term, Node)] for each in (gold, answer)]
    first, second = ([Node("/", (term, each[0])) for term in each] for each in terms)
    return len(first) == len(second) and all(map(are_equal, first, second))


def _brackets(value: Items) -> tuple[str, str]:
    """Return the brackets of a list, those of a vector as parentheses, and none for a set with dots."""
    is_set = value.opened == "{"
    return ("", "") if is_set else (value.opened.replace("<", "("), value.closed.replace(">", ")"))


def _is_unordered(value: Items) -> bool:
    """Return True for a set or a list, unless dots stand for some of its items."""
    return value.opened in ("", "{", "cases") and DOTS not in value.items


def _is_tuple(value: Items) -> bool:
    return value.opened == "("


def _is_assignment(value: Items) -> bool:
    """Return True for ``x = 1, y = 2``."""
    names = _names(value)
    return _has_several_names(value) and len(names) == len(value.items) == len({*names})


def _has_several_names(value: Items) -> bool:
    """Return True for ``x = 1, y = 2`` and ``x = 1, 2, y = 3``."""
    return value.opened == value.closed == "" and len({*_names(value)}) > 1


def _names(value: Items) -> list[str]:
    return [item.name.partition("_")[0] for item in value.items if isinstance(item, Named)]  # x_1 and x_2 are both x


def _as_tuple(value: Items) -> Items:
    named = sorted((item for item in value.items if isinstance(item, Named)), key=lambda item: item.name)
    return Items("(", tuple(item.value for item in named), ")")


def _distinct(items: Sequence[Value], rules: Rules) -> list[Value]:
    found: list[Value] = []
    for item in dict.fromkeys(map(_simplified, items)):
        if _is_integer(item) or not any(are_same(each, item, rules) for each in found if not _is_integer(each)):
            found.append(item)
    return found


def _is_integer(value: Value) -> bool:
    return isinstance(value, Node) and value.op == "number" and not value.places and value.value.denominator == 1


def _are_permuted(gold: list[Value], answer: list[Value], rules: Rules) -> bool:
    counts = [Counter(map(_simplified, each)) for each in (gold, answer)]
    items, left = ([*(one - other).elements()] for one, other in (counts, counts[::-1]))
    if len(gold) != len(answer) or len(items) > MAX_UNORDERED:
        return False
    for item in items:
        match = next((i for i, each in enumerate(left) if are_same(item, each, rules)), None)
        if match is None:
            return False
        del left[match]
    return True


def _are_same_numbers(gold: Value, answer: Value, rules: Rules) -> bool:
    first, second = as_numbers(gold), as_numbers(answer)
    if first is None or second is None or len({first.variable, second.variable} - {""}) > 1:
        return False
    try:
        return are_same_sets(first.elements, second.elements, ends_count=rules.ends_count)
    except UndefinedError:
        return False


def _are_same_matrices(gold: Value, answer: Value, rules: Rules) -> bool:
    """Compare matrices, also as lists of rows, and a column with the tuple of its entries."""
    gold, answer = _as_matrix(gold), _as_matrix(answer)
    if isinstance(gold, Items) or isinstance(answer, Items):
        column, other = _as_column(gold), _as_column(answer)
        return column is not None and other is not None and _are_same_items(column, other, rules)
    if not (isinstance(gold, Matrix) and isinstance(answer, Matrix)) or gold.bars != answer.bars:
        return False
    shapes = [(len(each.rows), len(each.rows[0])) for each in (gold, answer)]
    cells = [[cell for row in each.rows for cell in row] for each in (gold, answer)]
    return shapes[0] == shapes[1] and all(are_same(a, b, rules) for a, b in zip(*cells, strict=True))


def _as_matrix(value: Value) -> Value:
    if not isinstance(value, Items) or value.opened != "[" or len(value.items) < 2:
        return value
    rows = tuple(row.items for row in value.items if isinstance(row, Items) and row.opened == "[")
    return Matrix(rows) if len(rows) == len(value.items) and len(set(map(len, rows))) == 1 else value


def _as_column(value: Value) -> Items | None:
    if isinstance(value, Matrix):
        is_column = not value.bars and len(value.rows) > 1 and len(value.rows[0]) == 1
        return Items("(", tuple(row[0] for row in value.rows), ")") if is_column else None
    is_row = isinstance(value, Items) and value.opened + value.closed in ("()", "<>", "[]")
    return Items("(", value.items, ")") if is_row else None  # type: ignore[union-attr]


def _are_same_named(gold: Value, answer: Value, rules: Rules) -> bool:
    """Compare ``x = 2`` with ``x = 2`` or 2, or the equation of a curve with another form of it."""
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _are_same_curves(gold, answer, rules)
    if isinstance(gold, Named) and isinstance(answer, Named) and gold.name != answer.name:
        return _is_of(gold, answer.name) and _is_of(answer, gold.name) and _are_same_curves(gold, answer, rules)
    first, second = (each.value if isinstance(each, Named) else each for each in (gold, answer))
    return are_same(first, second, rules)


def _is_of(named: Named, variable: str) -> bool:
    return isinstance(named.value, Node) and variable in variables(named.value)


def _are_same_curves(gold: Value, answer: Value, rules: Rules) -> bool:
    first, second = _as_relation(gold), _as_relation(answer)
    return first is not None and second is not None and are_same(first, second, rules)


def _as_relation(value: Value) -> Relation | None:
    if isinstance(value, Named) and isinstance(value.value, Node):
        return Relation(Node("+", (Node("symbol", value=value.name), Node("-", (value.value,)))), "=")
    return value if isinstance(value, Relation) else None


def _are_proportional(gold: Relation, answer: Relation) -> bool:
    """Return True if the differences are multiples of each other, by a positive factor for inequalities."""
    names = sorted(variables(gold.difference) | variables(answer.difference))
    rng, values = random.Random(f"{gold}{answer}"), list[list[Any]]()
    if not names or not (variables(gold.difference) == variables(answer.difference) == {*names}):
        return False
    try:
        with flint.ctx.workprec(2048):
            while len(values) < 6:
                point = {name: _complex(rng) for name in names}
                pair = [Evaluation().value(fold(substitute(each.difference, point))) for each in (gold, answer)]
                values.append(pair)
            ratio = values[0][1] / values[0][0]
            is_constant = all(_is_tiny(b - ratio * a) for a, b in values) and not ratio.contains(0)
    except UndefinedError:
        return False
    return is_constant and (gold.kind in ("=", "!=") or (ratio.imag.contains(0) and ratio.real > 0))


def _is_tiny(ball: Any) -> bool:
    return bool(ball.contains(0)) and bool(ball.abs_upper() < flint.arb(2) ** -1024)


def _complex(rng: random.Random) -> Node:
    real, imaginary = (Node("number", value=flint.fmpq(rng.randint(1, 1 << 16), 1 << 14)) for _ in range(2))
    return Node("+", (real, Node("*", (imaginary, Node("symbol", value="i")))))
