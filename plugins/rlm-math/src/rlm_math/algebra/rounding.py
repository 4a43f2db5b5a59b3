"""Decimals: one that is right to the digits it shows, and an exact number that rounds to a decimal reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import flint

from rlm_math.algebra.balls import HIGH_PRECISION, Evaluation
from rlm_math.algebra.nodes import Node, is_decimal

MIN_DIGITS = 3
"""Digits of a decimal reference that may be rounded."""
EXACT_DIGITS, FLOAT_DIGITS = 15, 17
"""Digits of a float that are right, and digits that are printed."""


class Rules(NamedTuple):
    """The knobs of the reward that define equality.

    Args:
        absolute, relative: Tolerances, the second relative to the reference.
        digits: Digits of a decimal for an exact number.
        ordered: Whether tuples are ordered.
        ends_count: Whether (1, 2] and [1, 2) differ.
    """

    absolute: float = 0.0
    relative: float = 0.0
    digits: int = 0
    ordered: bool = True
    ends_count: bool = True


EXACT = Rules()


def is_near(gold: Node, a: Node, answer: Node, b: Node, rules: Rules) -> bool:
    """Return True if the answer is within a tolerance, is right to its digits, or rounds to a decimal reference.

    Args:
        gold, answer: As they are written.
        a, b: Their values.
        rules: The tolerances.
    """
    with flint.ctx.workprec(HIGH_PRECISION):
        expected, given = Evaluation().value(a), Evaluation().value(b)
        distance = abs(given - expected)
        bounds = [rules.absolute, rules.relative * abs(expected)] if any(rules[:2]) else []
        shown = _places(answer)
        if rules.digits and shown is not None and not is_decimal(gold) and b.op == "number":
            digits = _significant(b, shown)
            noise = digits - EXACT_DIGITS if EXACT_DIGITS < digits <= FLOAT_DIGITS and not _terminates(a) else 0
            last = flint.arb(10) ** -(shown - noise)
            if digits >= rules.digits and _shows(given, expected, last, is_noisy=noise > 0):
                return True
        shown = _places(gold)
        is_rounded = shown is not None and a.op == "number" and a.value.denominator != 1 and not is_decimal(answer)
        if is_rounded and shown is not None and _significant(a, shown) >= MIN_DIGITS and not _terminates(b):
            last = flint.arb(10) ** -shown
            bounds.append(last / 2)
            if 0 < rules.digits <= _significant(a, shown) and _shows(expected, given, last):
                return True
        return any(distance <= bound for bound in bounds)


def _shows(decimal: Any, exact: Any, last: Any, *, is_noisy: bool = False) -> bool:
    """Return True if a decimal is rounded or cut off in the place `last`; with noise, if it differs by less."""
    is_cut = abs(decimal) <= abs(exact) or is_noisy
    distance = abs(decimal - exact)
    return bool(distance < last) and (is_cut or not distance > last / 2)


def _places(node: Node) -> int | None:
    """Return the decimal places of a decimal; None for anything else."""
    if node.op == "-":
        return _places(node.args[0])
    return node.places or None if node.op == "number" else None


def _significant(value: Node, places: int) -> int:
    return len(str(abs(value.value) * flint.fmpq(10) ** places))


def _terminates(value: Node) -> bool:
    """Return True for a number that a decimal can be equal to."""
    if value.op != "number":
        return False
    denominator = value.value.denominator
    return bool(10 ** int(denominator.bit_length()) % denominator == 0)
