"""Operators that tests may apply to objects of the program, and the classes of tests' objects that may be passed.

Equality and order are missing: a program does not take part in comparisons.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from rlm_sandbox.inside import event_loop

READING: dict[str, Callable[..., Any]] = {
    "len": len,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "enter": lambda owner: type(owner).__enter__(owner),
    "exit": lambda owner, *details: type(owner).__exit__(owner, *details),
}
"""Operators of any object: they hand it no value of the tests."""

ARITHMETIC = tuple("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split())  # noqa: SIM905

OF_CONSTRUCTED: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "round": round,
    "abs": abs,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "contains": operator.contains,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "divmod": divmod,
    **{name: getattr(operator, f"{name}_" if name in ("and", "or") else name) for name in ARITHMETIC},
}
"""Operators only of objects that tests construct from a declared class: their operands may be values of the tests."""

PREDICATES = frozenset(
    name for kind in (str, set, float) for name in dir(kind) if name.startswith("is") or name.endswith("swith")
)
"""Methods of built-in types that only return True or False: tests that call them expect a value of that type."""

REPORTS = frozenset(name for kind in (str, frozenset, tuple, Decimal) for name in dir(kind) if name[0] != "_")
"""Methods of built-in values: on an object of the program, one with operands could return what the tests expect."""

REFLECTED = (*ARITHMETIC, "divmod")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

OPERATORS = {**READING, **OF_CONSTRUCTED, "await": event_loop.run}
