"""Polynomials in one variable."""

from __future__ import annotations

import random

from rlm_audit.mathematics.integers import SIGNS
from rlm_audit.mathematics.subject import Subject

Roots = tuple[int, tuple[int, ...]]
"""Leading coefficient and roots of a polynomial."""


def coefficients(value: Roots) -> list[int]:
    """Return the coefficients of a polynomial, the constant first."""
    result = [value[0]]
    for root in value[1]:
        shifted = [0, *result]
        result = [high - root * low for high, low in zip(shifted, [*result, 0], strict=True)]
    return result


def _draw(rng: random.Random, size: int) -> Roots:
    degree = rng.randint(1, min(size, 4) + 1)
    return rng.choice([1, 1, 2, 3, -1]), tuple(sorted(rng.randint(-3 - size, 3 + size) for _ in range(degree)))


def term(coefficient: int, power: int, letter: str = "x") -> str:
    """Return a monomial with its sign."""
    variable = {0: "", 1: letter}.get(power, f"{letter}^{{{power}}}" if power > 9 else f"{letter}^{power}")
    number = f"{abs(coefficient)}" if abs(coefficient) != 1 or power == 0 else ""
    return f"{'-' if coefficient < 0 else '+'}{number}{variable}"


def joined(terms: list[str]) -> str:
    """Return the sum of monomials."""
    return "".join(terms).removeprefix("+") or "0"


def _expanded(value: Roots, rng: random.Random, letter: str = "x") -> str:
    listed = [(c, p) for p, c in enumerate(coefficients(value)) if c]
    return joined([term(c, p, letter) for c, p in reversed(listed)])


def _shuffled(value: Roots, rng: random.Random) -> str:
    listed = [(c, p) for p, c in enumerate(coefficients(value)) if c]
    rng.shuffle(listed)
    return joined([term(c, p) for c, p in listed])


def _linear(root: int) -> str:
    return f"(x{-root:+d})" if root else "x"


def _factored(value: Roots, rng: random.Random) -> str:
    roots = list(value[1])
    rng.shuffle(roots)
    return {1: "", -1: "-"}.get(value[0], str(value[0])) + "".join(map(_linear, sorted(roots, key=bool)))


def _horner(value: Roots, rng: random.Random) -> str:
    *rest, first = coefficients(value)
    text = str(first)
    for coefficient in reversed(rest):
        text = f"({text})x{coefficient:+d}"
    return text


def _split_terms(value: Roots, rng: random.Random) -> str:
    terms = []
    for power, coefficient in enumerate(coefficients(value)):
        part = rng.randint(-5, 5)
        terms += [term(c, power) for c in (part, coefficient - part) if c]
    rng.shuffle(terms)
    return joined(terms)


def _changed_coefficient(value: Roots, rng: random.Random) -> str:
    listed = coefficients(value)
    index = rng.randrange(len(listed))
    listed[index] += rng.choice(SIGNS)
    return joined([term(c, p) for p, c in enumerate(listed) if c])


def _changed_root(value: Roots, rng: random.Random) -> Roots:
    roots = list(value[1])
    index = rng.randrange(len(roots))
    roots[index] = rng.choice([roots[index] + 1, -roots[index]])
    return value[0], tuple(sorted(roots))


POLYNOMIALS = Subject(
    draw=_draw,
    write=_expanded,
    notations={
        "factored": _factored,
        "terms in another order": _shuffled,
        "Horner's form": _horner,
        "terms not collected": _split_terms,
        "a name": lambda v, rng: f"f(x) = {_expanded(v, rng)}",
        "over a common factor": lambda v, rng: f"\\frac{{2({_factored(v, rng)})}}{{2}}",
    },
    near_misses={
        "a root": _changed_root,
        "the sign": lambda v, rng: (-v[0], v[1]),
        "the leading coefficient": lambda v, rng: (v[0] + 1, v[1]) if v[0] != -1 else None,
        "a missing factor": lambda v, rng: (v[0], v[1][1:]) if len(v[1]) > 1 else None,
        "a double factor": lambda v, rng: (v[0], tuple(sorted([*v[1], v[1][0]]))),
    },
    wrong_texts={
        "a coefficient": _changed_coefficient,
        "another variable": lambda v, rng: _expanded(v, rng, "y"),
        "a number": lambda v, rng: str(coefficients(v)[0]),
        "a tiny term": lambda v, rng: f"{_expanded(v, rng)}+10^{{-{rng.randint(5, 400)}}}",
        "the inverse": lambda v, rng: f"\\frac{{1}}{{{_expanded(v, rng)}}}",
        "the absolute value": lambda v, rng: f"|{_expanded(v, rng)}|" if len(v[1]) % 2 else None,
    },
)
