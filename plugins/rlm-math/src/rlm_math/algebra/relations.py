"""Comparison of relations: curves and inequalities."""

from __future__ import annotations

import random
from typing import Any

import flint

from rlm_math.algebra.balls import Evaluation, precision
from rlm_math.algebra.exact import fold
from rlm_math.algebra.nodes import Node, UndefinedError, substitute, variables
from rlm_math.algebra.values import Relation


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
