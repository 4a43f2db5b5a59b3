"""The objective of a stage in Unicode, put together from what the docstrings of its parts say.

The convention: somewhere in its docstring a part has one clause with its formula, ``symbol = …``, the symbol being
that of its hook; an aggregator begins with what it does to ``x``, the loss of a token. A clause ends at a full stop or
a colon, so ``ℓ = −min(w, cap) · Â: the weight is capped.`` is formula and meaning. Knobs that are numbers are
written in as numbers, also where the formula spells them in Greek (ε_high for `epsilon_high`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.parts import Bound, Part
from rlm_plugins.registry.signature import code_of
from rlm_plugins.rows import SLOTS, Row

Slots = Mapping[str, Any]
"""Key of ``algorithm:`` → a part, None, or a list of parts."""
Line = tuple[str, str, str]
"""A symbol, what stands for it, and the part with its knobs."""

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "lam": "λ", "mu": "μ", "tau": "τ"}
_CLAUSE = re.compile(r"[.:](?=\s|$)")
_ASSIGNED = r"[ᵢₜ_a-z]* [−+]?= "


def summary(target: Any) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join(_text(target).split("\n\n")[0].split())
    return re.split(r"\.(?=\s+[^a-z0-9]|$)", paragraph)[0]


def gist(part: Part) -> str:
    """The first clause of its docstring."""
    return next(iter(_clauses(part)), "")


def formula(part: Part) -> str:
    """The clause of its docstring that is its formula; empty when it has none."""
    symbol = re.escape(HOOKS[part.hook].symbol.removeprefix("β"))
    clauses = _clauses(part)
    own = [clause for clause in clauses if re.search(rf"(?<!\w){symbol}{_ASSIGNED}", clause)]
    other = [clause for clause in clauses if re.match(rf"\w{_ASSIGNED}", clause)]
    return next(iter(own + other), "")


def with_values(text: str, part: Bound) -> str:
    """`text` with the knobs that are numbers written in."""
    for knob, value in part.knobs.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        first, *rest = knob.split("_")
        for spelling in {knob, "_".join([_GREEK.get(first, first), *rest])}:
            text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", f"{value:g}", text)
    return text


def objective(slots: Slots) -> str:
    """The loss that is minimised, on one line."""
    weights = "".join(f"{symbol} · " for symbol, _ in _numbered("c", slots["token_weights"]))
    costs = "".join(f" + {part.beta:g} {symbol}" for symbol, part in _numbered("Ω", slots["penalties"]))
    token = f"{weights}{_right_side(slots['policy_loss'])}{costs}".replace("+ -", "− ")
    total = with_values(gist(slots["aggregator"].part), slots["aggregator"])
    x = re.compile(r"(?<!\w)x(?!\w)")
    whole = x.sub(lambda _: f"[ {token} ]", total) if x.search(total) else f"{slots['aggregator'].part.name}[ {token} ]"
    return f"loss = {whole}"


def legend(slots: Slots) -> list[Line]:
    """What each symbol of :func:`objective` stands for, from the loss down to the reward."""
    parts = [
        ("1/Z", slots["aggregator"]),
        ("ℓ", slots["policy_loss"]),
        *_numbered("c", slots["token_weights"]),
        *_numbered("Ω", slots["penalties"]),
        ("w", slots["importance"]),
        ("Â", slots["advantage"]),
        *(("rows", part) for part in slots["filters"]),
        *_numbered("r′", slots["shapers"]),
    ]
    chosen = [(symbol, part) for symbol, part in parts if part is not None]
    return [(symbol, with_values(formula(p.part) or gist(p.part), p), call(p)) for symbol, p in chosen]


def call(part: Bound) -> str:
    """A part with the knobs it has been given: ``clip(epsilon=0.2, delta=null)``."""
    values = ("null" if v is None else str(v).lower() if isinstance(v, bool) else v for v in part.knobs.values())
    knobs = ", ".join(f"{name}={value}" for name, value in zip(part.knobs, values, strict=True))
    return f"{part.part.name}({knobs})" if knobs else part.part.name


def slots_of(row: Row, registry: Registry) -> Slots:
    """The parts of a row, every knob as the row has it.

    Raises:
        RecipeError: The row names a part nobody offers, or a knob it does not have.
    """
    slots: dict[str, Any] = {}
    for hook, seam in HOOKS.items():
        if seam.key in SLOTS:
            spec: Any = getattr(row, seam.key)
            found = [_bound(registry, hook, one) for one in (spec if seam.many else [spec]) if one is not None]
            slots[seam.key] = found if seam.many else next(iter(found), None)
    return slots


def _bound(registry: Registry, hook: str, spec: Any) -> Bound:
    knobs: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    beside = {name: knobs.pop(name) for name in HOOKS[hook].keys if name in knobs}
    part = registry.find(hook, knobs.pop("name"), where=HOOKS[hook].key)
    return replace(part.bind(knobs, where=HOOKS[hook].key), beside=beside)


def _right_side(part: Bound) -> str:
    """What stands right of the ``=``; without a formula the part's name and what it is given."""
    text = formula(part.part)
    if not text:
        return f"{part.part.name}({', '.join(part.part.needs)})"
    return with_values(text.split("= ", 1)[1], part)


def _numbered(symbol: str, parts: Sequence[Bound]) -> list[tuple[str, Bound]]:
    """c for one part, c₁, c₂, … for several."""
    return [(symbol if len(parts) == 1 else symbol + chr(0x2080 + n), part) for n, part in enumerate(parts, 1)]


def _clauses(part: Part) -> list[str]:
    paragraphs = [" ".join(text.split()) for text in _text(part.target).split("\n\n")]
    return [clause.strip() for text in paragraphs for clause in _CLAUSE.split(text) if clause.strip()]


def _text(target: Any) -> str:
    """The docstring up to its doctests."""
    documented = target if inspect.isroutine(target) or inspect.isclass(target) else code_of(target)
    return (inspect.getdoc(documented) or "").split(">>>")[0].strip()
