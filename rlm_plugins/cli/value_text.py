"""Knobs with their values: in a formula, and as a recipe spells them.

A formula may spell a knob in Greek (ε_high for `epsilon_high`). For a knob that is null its part's docstring says what
is meant: the knob in backquotes, then ``(default: …)`` with another knob or a value, in backquotes too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.signature import code_of
from rlm_plugins.schedule import Schedule

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "lam": "λ", "mu": "μ", "tau": "τ"}
_UNBOUNDED = re.compile(r"min\(([^(),]+), ∞\)")
"""What has no bound, and so is itself."""
_DEFAULT = r"`{}` \(default: `([^`]+)`"


def spelt(knob: str) -> str:
    """A knob as formulas spell it.

    >>> spelt("epsilon_high"), spelt("share")
    ('ε_high', 'share')
    """
    first, *rest = knob.split("_")
    return "_".join([_GREEK.get(first, first), *rest])


def meant(part: Bound, knob: str) -> Any:
    """The value of a knob; for null what the docstring says null means, and None where it says nothing."""
    value = part.knobs[knob]
    if value is not None:
        return value
    said = re.search(_DEFAULT.format(re.escape(knob)), doc(part.part.target))
    if said is None:
        return None
    return meant(part, said[1]) if said[1] in part.knobs else said[1]


def with_values(text: str, part: Bound) -> str:
    """`text` with the knobs that are numbers written in."""
    for knob, given in part.knobs.items():
        value = meant(part, knob)
        if isinstance(given, str | bool) or not isinstance(value, int | float | str | Schedule):
            continue
        written = number(value) if not isinstance(value, str) else f"({value})" if len(value) > 1 else value
        for spelling in {knob, spelt(knob)}:
            text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", written, text)
    return _UNBOUNDED.sub(r"\1", text)


def number(value: float | Schedule) -> str:
    """A number in a formula; what moves with its two ends.

    >>> number(0.2), number(Schedule(0.2, 0.3, over=100))
    ('0.2', '(0.2→0.3)')
    """
    return f"({value.start:g}→{value.end:g})" if isinstance(value, Schedule) else f"{value:g}"


def call(part: Bound) -> str:
    """A part with the knobs it has been given: ``clip(epsilon=0.2, delta=null)``."""
    return spelled(part.part.name, given(part))


def given(part: Bound) -> dict[str, Any]:
    """Everything a recipe may say of a part, with its value: what stands beside the knobs (beta always), the knobs."""
    beta = {"beta": part.beta} if "beta" in HOOKS[part.part.hook].keys else {}
    return {**beta, **part.beside, **part.knobs}


def spelled(name: str, knobs: Mapping[str, Any]) -> str:
    """A name and knobs, with values as a recipe spells them."""
    values = ("null" if v is None else str(v).lower() if isinstance(v, bool) else v for v in knobs.values())
    listed = ", ".join(f"{knob}={value}" for knob, value in zip(knobs, values, strict=True))
    return f"{name}({listed})" if listed else name


def doc(target: Any) -> str:
    """The docstring up to its doctests."""
    documented = target if inspect.isroutine(target) or inspect.isclass(target) else code_of(target)
    return (inspect.getdoc(documented) or "").split(">>>")[0].strip()
