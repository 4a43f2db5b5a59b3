"""Values of knobs as text: in a formula, and as a recipe spells them.

A formula may spell a knob in Greek (ε_high for `epsilon_high`). The effective value of a knob that is null stands in
the docstring of its part: the knob in backquotes, then ``(default: …)`` with another knob or a value in backquotes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.signature import code_of
from rlm_plugins.schedule import Schedule

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "lam": "λ", "mu": "μ", "tau": "τ"}
_UNBOUNDED = re.compile(r"min\(([^(),]+), ∞\)")
"""A minimum with infinity, which is its other argument."""
_DEFAULT = r"`{}` \(default: `([^`]+)`"


def formula_name(knob: str) -> str:
    """Return a knob as formulas spell it.

    >>> formula_name("epsilon_high"), formula_name("share")
    ('ε_high', 'share')
    """
    first, *rest = knob.split("_")
    return "_".join([_GREEK.get(first, first), *rest])


def effective(part: Bound, knob: str) -> Any:
    """Return the value of a knob; for null the default that its part's docstring names, or None."""
    value = part.knobs[knob]
    if value is not None:
        return value
    default = re.search(_DEFAULT.format(re.escape(knob)), doc(part.part.target))
    if default is None:
        return None
    return effective(part, default[1]) if default[1] in part.knobs else default[1]


def with_values(text: str, part: Bound) -> str:
    """Return `text` with the values of numeric knobs in place of their names."""
    for knob, setting in part.knobs.items():
        value = effective(part, knob)
        if isinstance(setting, str | bool) or not isinstance(value, int | float | str | Schedule):
            continue
        for spelling in {knob, formula_name(knob)}:
            text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", _in_formula(value), text)
    return _UNBOUNDED.sub(r"\1", text)


def _in_formula(value: float | str | Schedule) -> str:
    if not isinstance(value, str):
        return number(value)
    return f"({value})" if len(value) > 1 else value


def number(value: float | Schedule) -> str:
    """Return a number as text, a schedule by its two ends.

    >>> number(0.2), number(Schedule(0.2, 0.3, over=100))
    ('0.2', '(0.2→0.3)')
    """
    return f"({value.start:g}→{value.end:g})" if isinstance(value, Schedule) else f"{value:g}"


def call(part: Bound) -> str:
    """Return a part with its settings: ``clip(epsilon=0.2, delta=null)``."""
    return call_text(part.part.name, settings_of(part))


def settings_of(part: Bound) -> dict[str, Any]:
    """Return every recipe key of a part with its value: its options (beta always), then its knobs."""
    beta = {"beta": part.beta} if "beta" in HOOKS[part.part.hook].options else {}
    options = {key: call(value) if isinstance(value, Bound) else value for key, value in part.options.items()}
    return {**beta, **options, **part.knobs}


def call_text(name: str, knobs: Mapping[str, Any]) -> str:
    """Return a name and its knobs, with values as a recipe spells them."""
    values = ("null" if v is None else str(v).lower() if isinstance(v, bool) else v for v in knobs.values())
    listed = ", ".join(f"{knob}={value}" for knob, value in zip(knobs, values, strict=True))
    return f"{name}({listed})" if listed else name


def doc(target: Any) -> str:
    """Return the docstring up to its doctests."""
    documented = target if inspect.isroutine(target) or inspect.isclass(target) else code_of(target)
    return (inspect.getdoc(documented) or "").split(">>>")[0].strip()
