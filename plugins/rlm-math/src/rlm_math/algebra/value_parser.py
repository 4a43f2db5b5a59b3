"""Parser of answers: splits a text at its top-level separators, from sets and relations down to expressions."""

from __future__ import annotations

from collections.abc import Callable

from rlm_math.algebra import bracket_rules, list_rules
from rlm_math.algebra.equality import are_equal, compare
from rlm_math.algebra.evaluation import Rules, fold
from rlm_math.algebra.list_rules import (
    RELATIONS,
    Parse,
    Tokens,
    has_signs,
    is_enclosed,
    is_mark,
    kinds_of,
    lone_name,
    split,
    with_each_sign,
)
from rlm_math.algebra.nodes import (
    INFINITY,
    MINUS_INFINITY,
    Node,
    Token,
    UndefinedError,
    UnreadableError,
    number,
    substitute,
    tokenize,
    variables,
)
from rlm_math.algebra.parser import parse_expression
from rlm_math.algebra.values import (
    Combination,
    Interval,
    Items,
    Named,
    Numbers,
    RealSet,
    Relation,
    Value,
    as_numbers,
    combined,
    listed,
    without,
)


def approximation(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse ``\\sqrt{5} \\approx 2.24``, a number with decimals that it rounds to, as this number."""
    exact, *decimals = split(tokens, "\\approx")
    if not decimals:
        return None
    value = parse(exact)
    node = value.value if isinstance(value, Named) else value
    rounded = [parse_expression(each) for each in decimals]
    if not isinstance(node, Node) or variables(node) or not all(_rounds_to(node, each) for each in rounded):
        raise UnreadableError("\\approx")
    return value


def _rounds_to(node: Node, decimal: Node) -> bool:
    places = decimal.places or (decimal.args[0].places if decimal.op == "-" else 0)
    return places > 0 and are_equal(decimal, node, Rules(absolute=0.5 / 10**places))


def membership(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse ``x \\in S``."""
    parts = split(tokens, "\\in")
    if len(parts) == 1 or len(split(tokens, ",")) > 1:
        return None
    name = _name(parts[0]) if len(parts) == 2 else ""
    if not name:
        raise UnreadableError("\\in")
    value = parse(parts[1])
    if isinstance(value, Items) and value.opened == "{":
        return Items("{", tuple(Named(name, item) for item in value.items), "}")
    if isinstance(value, Node) and str(value.value).startswith("\\mathbb"):
        return Named(name, value)
    numbers = as_numbers(value)
    if numbers is None or name.startswith("("):
        raise UnreadableError("\\in")
    return Numbers(numbers.elements, name)


def relation(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse an equation, an inequality, or a chain of inequalities."""
    tokens = [Token("mark", "=") if is_mark(token, "\\equiv") else token for token in tokens]
    parts = split(tokens, *RELATIONS)
    if len(parts) == 1:
        return None
    kinds = kinds_of(tokens)
    if kinds == ["="]:
        name = _name(parts[0])
        if not name and has_signs(tokens):
            return with_each_sign(tokens, parse)
        return Named(name, parse(parts[1])) if name else _equation(parts)
    if {*kinds} == {"="} and (named := _equal_names(parts, parse)):
        return named
    if {*kinds} == {"="}:
        return Items("chain", tuple(parse(part) for part in parts[bool(_name(parts[0])) :]), "")
    if "=" in kinds or ("!=" in kinds and len(kinds) > 1):
        raise UnreadableError("a chain of equations")
    if kinds == ["!="] and (name := lone_name(parts[0])):
        value = parse(parts[1])
        if isinstance(value, Items) and not value.opened:  # x ≠ ±1
            return combined(
                "intersection",
                [Numbers(without(each), name) if isinstance(each, Node) else None for each in value.items],
            )
    relations = [_inequality(parts[i], kind, parts[i + 1]) for i, kind in enumerate(kinds)]
    if len(relations) == 1:
        return relations[0]
    if all(isinstance(each, Numbers) for each in relations):
        return combined("intersection", [as_numbers(each) for each in relations])
    return Items("", tuple(relations), "")


def _equal_names(parts: list[Tokens], parse: Parse) -> Items | None:
    """Return ``a = b = c = 1`` as the value of each of different names; None for anything else."""
    names = [lone_name(part) for part in parts[:-1]]
    if not all(names) or len({*names}) < len(names):
        return None
    return Items("", tuple(Named(name, parse(parts[-1])) for name in names), "")


def _equation(parts: list[Tokens]) -> Relation | Named:
    for side, other in (parts, parts[::-1]):
        if all(token.kind in ("letter", "word") for token in side) and not variables(parse_expression(other)):
            return Named("".join(token.text for token in side), parse_expression(other))
    return _difference(parts[0], parts[1], "=")


def _name(tokens: Tokens) -> str:
    """Return the names on the left of an equation that only names a value: ``x``, ``(x, y)`` or ``P(X=2)``."""
    if name := lone_name(tokens):
        return name
    texts = [token.text for token in tokens]
    if len(tokens) > 3 and texts[1] == "(" and is_enclosed(tokens[1:]):
        has_variables = any(token.kind == "letter" and token.text.islower() for token in tokens)
        is_function = tokens[0].kind == "word" or (texts[0].isupper() and not has_variables)
        return "".join(texts) if is_function else ""
    if is_enclosed(tokens) and is_mark(tokens[0], "("):
        names = [lone_name(part) for part in split(tokens[1:-1], ",")]
        return f"({','.join(names)})" if all(names) and len(names) > 1 else ""
    return ""


def _difference(left: Tokens, right: Tokens, kind: str) -> Relation:
    return Relation(Node("+", (parse_expression(left), Node("-", (parse_expression(right),)))), kind)


def _inequality(left: Tokens, kind: str, right: Tokens) -> Value:
    """Return the solutions if a variable is compared with a constant, else the inequality."""
    if kind in (">", ">="):
        left, kind, right = right, kind.replace(">", "<"), left
    for name, other, is_low in ((lone_name(left), right, False), (lone_name(right), left, True)):
        bound = parse_expression(other) if name else None
        if bound is not None and not variables(bound) - {INFINITY.value}:
            return Numbers(_solutions(bound, kind, is_low), name)
    return _distance(left, kind, right) or _linear(left, kind, right) or _difference(left, right, kind)


def _linear(left: Tokens, kind: str, right: Tokens) -> Numbers | None:
    """Return the solutions of ``a x + b < 0`` with numbers a and b; None for anything else."""
    difference = _difference(left, right, kind).difference
    if len(names := variables(difference) - {INFINITY.value}) != 1:
        return None
    (name,) = names
    zero, one = (substitute(difference, {name: number(k)}) for k in (0, 1))
    slope = Node("+", (one, Node("-", (zero,))))
    line = Node("+", (Node("*", (slope, Node("symbol", value=name))), zero))
    try:
        if are_equal(slope, number(0)) or not are_equal(difference, line):
            return None
        bound = fold(Node("-", (Node("/", (zero, slope)),)))
        return Numbers(_solutions(bound, kind, compare(slope, number(0)) < 0), name)
    except UndefinedError:
        return None


def _distance(left: Tokens, kind: str, right: Tokens) -> Numbers | None:
    """Return the solutions of ``|x − a| < c`` and ``c < |x − a|`` for a positive constant c; None for anything else.

    In the second c may be 0.
    """
    nodes = [parse_expression(left), parse_expression(right)]
    absolute = [node.args[0] for node in nodes if node.op == "abs" and len(variables(node)) == 1]
    bound = [node for node in nodes if not variables(node)]
    if kind == "!=" or len(absolute) != 1 or len(bound) != 1 or not _is_positive(bound[0], nodes[1].op == "abs"):
        return None
    (name,) = variables(absolute[0])
    center = _zero(absolute[0], name)
    if center is None:
        return None
    ends, has_ends = (Node("+", (center, Node("-", (bound[0],)))), Node("+", (center, bound[0]))), kind == "<="
    if nodes[0].op == "abs":
        return Numbers(Interval(*ends, has_low=has_ends, has_high=has_ends), name)
    below = Interval(MINUS_INFINITY, ends[0], has_low=False, has_high=has_ends)
    above = Interval(ends[1], INFINITY, has_low=has_ends, has_high=False)
    return Numbers(Combination("union", (below, above)), name)


def _is_positive(bound: Node, or_zero: bool) -> bool:
    try:
        order = compare(bound, number(0))
    except UndefinedError:  # a complex number
        return False
    return order > 0 or (or_zero and order == 0)


def _zero(node: Node, name: str) -> Node | None:
    variable, at_zero = Node("symbol", value=name), substitute(node, {name: number(0)})
    if are_equal(node, Node("+", (variable, at_zero))):
        return Node("-", (at_zero,))
    return at_zero if are_equal(node, Node("+", (at_zero, Node("-", (variable,))))) else None


def _solutions(bound: Node, kind: str, is_low: bool) -> RealSet:
    if kind == "!=":
        return without(bound)
    has_end = kind == "<="
    if is_low:
        return Interval(bound, INFINITY, has_low=has_end, has_high=False)
    return Interval(MINUS_INFINITY, bound, has_low=False, has_high=has_end)


def congruence(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse one or several residues with their modulus."""
    parts = split(tokens, "\\pmod")
    if len(parts) != 2:
        return None
    left = split(parts[0], "\\equiv")
    if len(left) > 1 and not lone_name(left[0]):
        left = left[::-1]
    name = lone_name(left[0]) if len(left) > 1 else ""
    if len(left) > 2 or (len(left) == 2 and not name):
        raise UnreadableError("\\equiv")  # a chain may hold a false congruence
    value, modulus = parse(left[-1]), parse_expression(parts[1])
    residues = value.items if isinstance(value, Items) and value.opened == "" else (value,)
    nodes = [each for each in listed(residues) if isinstance(each, Node)]
    if len(nodes) < len(residues):
        raise UnreadableError("\\pmod")
    each_one = [Items("mod", (Node("mod", (node, modulus)), modulus), "") for node in nodes]
    values = [Named(name, each) if name else each for each in each_one]
    return values[0] if len(values) == 1 else Items("", tuple(values), "")


def parse_value(text: str) -> Value:
    """Parse an answer.

    Raises:
        UnreadableError: It is no mathematics, or has two readings.
        UndefinedError: It contains a division of two numbers by zero.
    """
    return _parse(tokenize(text))


def _parse(tokens: Tokens) -> Value:
    if not tokens:
        raise UnreadableError("empty")
    for rule in _RULES:
        value = rule(tokens, _parse)
        if value is not None:
            return value
    return parse_expression(tokens)


_RULES: tuple[Callable[[Tokens, Parse], Value | None], ...] = (
    list_rules.prose,
    congruence,
    approximation,
    list_rules.alternatives,
    membership,
    list_rules.set_operation,
    list_rules.comma_list,
    relation,
    list_rules.ratio,
    list_rules.plus_minus,
    bracket_rules.transposed,
    bracket_rules.brackets,
)
"""Tried in this order: what binds weakest comes first."""
