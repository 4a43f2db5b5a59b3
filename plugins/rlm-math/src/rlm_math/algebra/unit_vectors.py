"""Vectors as linear forms in the unit vectors: ``2i − 3j`` is ``(2, −3)``."""

from __future__ import annotations

import re

from rlm_math.algebra.equality import are_equal
from rlm_math.algebra.nodes import Node, number, substitute, variables, walk
from rlm_math.algebra.values import Items, Named, Value

_UNITS = "ijk"
_WRITTEN = re.compile(r"\\(?:vec|hat)\s*\{?\s*\\?[ijk]")


def has_unit_vectors(text: str) -> bool:
    """Return True for a text with i, j or k as vectors, not as parameters.

    >>> has_unit_vectors(r"2\\vec{i}"), has_unit_vectors(r"\\hat{\\imath}"), has_unit_vectors("2i+j")
    (True, True, False)
    """
    return _WRITTEN.search(text) is not None


def may_have_unit_vectors(gold: Value, text: str) -> bool:
    """Return True if answers to a reference may be written with unit vectors: it has them, j or k, or is no number."""
    value = gold.value if isinstance(gold, Named) else gold
    return has_unit_vectors(text) or not isinstance(value, Node) or bool({"j", "k"} & variables(value))


def coordinates(node: Node, size: int) -> Items | None:
    """Return the coefficients of i, j and k as a tuple of `size` numbers; None for anything else.

    A form with i alone is a complex number.
    """
    names = {each.value for each in walk(node) if each.op == "symbol"}
    if size not in (2, 3) or not names & {"j", "k"} or names & {*_UNITS[size:]}:
        return None
    parts = tuple(substitute(node, {name: number(int(name == unit)) for name in _UNITS}) for unit in _UNITS[:size])
    axes = {unit: Node("symbol", value=f"axis {unit}") for unit in _UNITS}  # the symbol i has a value
    form = Node("+", tuple(Node("*", (part, axes[unit])) for part, unit in zip(parts, _UNITS, strict=False)))
    return Items("(", parts, ")") if are_equal(substitute(node, axes), form) else None
