"""Lists with dots in one notation: ``1, 2, 3, \\ldots, 9`` is ``1, 2, \\ldots, 9``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from rlm_math.algebra.errors import UndefinedError
from rlm_math.algebra.exact import fold
from rlm_math.algebra.nodes import Node
from rlm_math.algebra.values import DOTS, Items, Value


def shortened(value: Items) -> Items:
    """Return an arithmetic progression with its first two numbers, dots, and its last; any other list as it is.

    A list without a last number keeps three: 1, 2, … may also be powers of two.
    """
    if value.items.count(DOTS) != 1:
        return value
    at = value.items.index(DOTS)
    first, last = ([_rational(item) for item in part] for part in (value.items[:at], value.items[at + 1 :]))
    if len(first) < 2 or None in (*first, *last):
        return value
    steps = {b - a for part in (first, last) for a, b in pairwise(part)}
    if len(steps) > 1:
        return value
    first_items = value.items[: min(at, 2 if last else 3)]
    return Items(value.opened, (*first_items, DOTS, *value.items[at + 1 :][-1:]), value.closed)


def _rational(item: Value) -> Any:
    """Return the value of a rational number; None for anything else."""
    try:
        node = fold(item) if isinstance(item, Node) else None
    except UndefinedError:
        return None
    return node.value if node is not None and node.op == "number" else None
