"""Comparison of relations: curves, inequalities and residue classes."""

from __future__ import annotations

import random
from typing import Any

import flint

from rlm_math.algebra.balls import Evaluation, precision
from rlm_math.algebra.equality import are_equal
from rlm_math.algebra.exact import fold
from rlm_math.algebra.nodes import Node, UndefinedError, number, substitute, variables
from rlm_math.algebra.values import Congruence, Named, Relation, Value


def as_congruence(value: Value) -> Congruence | None:
    """Return ``n = 3k + 1``, or ``3k + 1``, as a residue class for an integer k; None for anything else."""
    name, node = (value.name, value.value) if isinstance(value, Named) else ("", value)
    if isinstance(value, Congruence) or not isinstance(node, Node):
        return value if isinstance(value, Congruence) else None
    names = variables(node)
    if len(names) != 1 or name in names:
        return None
    (parameter,) = names
    residue, next_one = (substitute(node, {parameter: number(each)}) for each in (0, 1))
    modulus = Node("+", (next_one, Node("-", (residue,))))
    line = Node("+", (Node("*", (modulus, Node("symbol", value=parameter))), residue))
    return Congruence(residue, modulus, name) if are_equal(node, line) else None


def are_same_residues(gold: Congruence, answer: Congruence) -> bool:
    """Compare residue classes; a negative modulus is the same as a positive one."""
    moduli = answer.modulus, Node("-", (answer.modulus,))
    if len({gold.name, answer.name} - {""}) > 1 or not any(are_equal(gold.modulus, each) for each in moduli):
        return False
    try:
        values = [fold(each) for each in (gold.residue, answer.residue, gold.modulus)]
    except UndefinedError:
        return False
    if any(each.op != "number" or each.value.denominator != 1 for each in values) or values[2].value == 0:
        return are_equal(gold.residue, answer.residue)
    return bool((values[0].value - values[1].value).numerator % values[2].value.numerator == 0)


def are_proportional(gold: Relation, answer: Relation) -> bool:
    """Return True if the differences are multiples of each other, by a positive factor for inequalities."""
    names = sorted(variables(gold.difference) | variables(answer.difference))
    rng, values = random.Random(f"{gold}{answer}"), list[list[Any]]()
    if not names or not (variables(gold.difference) == variables(answer.difference) == {*names}):
        return False
    try:
        with precision(2048):
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
