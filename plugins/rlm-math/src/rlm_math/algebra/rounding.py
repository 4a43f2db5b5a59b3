"""Constants that are near the reference: within a tolerance, or rounding to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import flint

from rlm_math.algebra.balls import HIGH_PRECISION, Evaluation, precision
from rlm_math.algebra.nodes import DEGREE, Node, is_decimal, number

_FREE = {"+", "-", "*", "/", "^"}
MIN_DIGITS = 3
"""Digits of a decimal reference that may be rounded."""


class Nearness(NamedTuple):
    """Tolerances of the reward: absolute, and relative to the reference."""

    absolute: float = 0.0
    relative: float = 0.0


EXACT = Nearness()


def is_near(gold: Node, a: Node, answer: Node, b: Node, nearness: Nearness) -> bool:
    """Return True if the answer is within a tolerance, or rounds to a reference that is a decimal."""
    places = gold.places or (gold.args[0].places if gold.op == "-" else 0)
    bounds = [flint.arb(nearness.absolute)] if any(nearness) else []
    with precision(HIGH_PRECISION):
        difference = Evaluation().value(b) - Evaluation().value(a)
        if any(nearness):
            bounds.append(flint.arb(nearness.relative) * abs(Evaluation().value(a)))
        is_fraction = places and a.op == "number" and a.value.denominator != 1
        digits = len(str(abs(a.value) * 10**places)) if is_fraction else 0
        if digits >= MIN_DIGITS and _digits(answer) < digits and not _terminates(answer, b):
            bounds.append(flint.arb(5) / flint.arb(10) ** (places + 1))
        return any(abs(difference) <= bound for bound in bounds)


def _digits(node: Node) -> int:
    """Return the digits of an expression, and its constants and functions beyond the first.

    An answer with fewer of them than the reference has digits cannot be fitted to it.
    """
    if node == DEGREE:
        return 0
    parts = [each for each in _walk_outside_degrees(node) if each.op not in _FREE]
    values = [each.value for each in parts if each.op == "number"]
    digits = sum(len(str(x.numerator)) + len(str(x.denominator)) * (x.denominator != 1) for x in values)
    return digits + max(0, len(parts) - len(values) - 1)


def _walk_outside_degrees(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it, except the degree sign and the 2 of a square root."""
    yield node
    for each in node.args[:1] if node.op == "root" and node.args[1] == number(2) else node.args:
        if each != DEGREE:
            yield from _walk_outside_degrees(each)


def _terminates(answer: Node, folded: Node) -> bool:
    """Return True for an answer that a decimal can be equal to, or that contains one."""
    if is_decimal(answer):
        return True
    if folded.op != "number":
        return False
    denominator = folded.value.denominator
    return bool(10 ** int(denominator.bit_length()) % denominator == 0)
