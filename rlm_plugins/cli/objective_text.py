"""The objective of a stage in Unicode, put together from what the docstrings of its parts say.

The convention: somewhere in its docstring a part has one clause with its formula, ``symbol = …``, the symbol being
that of its hook; an aggregator begins with what it does to ``x``, the loss of a token. A clause ends at a full stop or
a colon, so ``ℓ = −min(w, cap) · Â: the weight is capped.`` is formula and meaning. Knobs that are numbers are
written in as numbers (:mod:`rlm_plugins.cli.value_text`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlm_plugins.algorithm import SLOTS, Algorithm
from rlm_plugins.cli.value_text import call, doc, number, with_values
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe.part_lookup import coefficient
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part

Slots = Mapping[str, Any]
"""Key of ``algorithm:`` → a part, None, or a list of parts."""
Line = tuple[str, str, str]
"""A symbol, what stands for it, and the part with its knobs."""

SYMBOLS = {hook.key: hook.symbol for hook in HOOKS.values()} | {"filters": "rows", "penalties": "Ω", "sampler": "x"}
"""Recipe key → the symbol its parts are told under."""
_LOSS = ("aggregator", "policy_loss", "token_weights", "penalties", "importance", "advantage")
DOWNWARDS = (*_LOSS, *(key for key in reversed(SLOTS) if key not in _LOSS))
"""The slots from the loss down to the rows."""
_CLAUSE = re.compile(r"[.:](?=\s|$)")
_ASSIGNED = r"[ᵢₜ_a-z]* [−+]?= "


def summary(target: Any) -> str:
    """Return the first sentence of a docstring."""
    return first_sentence(doc(target))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its period.

    >>> first_sentence("A bonus, cf. arXiv 1.2. More.")
    'A bonus, cf. arXiv 1.2'
    """
    paragraph = " ".join(text.split("\n\n")[0].split())
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


def objective(slots: Slots) -> str:
    """The loss that is minimised, on one line."""
    weights = "".join(f"{symbol} · " for symbol, _ in _numbered("c", slots["token_weights"]))
    costs = "".join(
        f" + {number(part.beta)} {symbol}{_where(part)}" for symbol, part in _numbered("Ω", slots["penalties"])
    )
    loss = slots["policy_loss"]
    token = f"{weights}{_right_side(loss)}{_where(loss)}{costs}".replace("+ -", "− ")
    total = with_values(gist(slots["aggregator"].part), slots["aggregator"])
    x = re.compile(r"(?<!\w)x(?!\w)")
    whole = x.sub(lambda _: f"[ {token} ]", total) if x.search(total) else f"{slots['aggregator'].part.name}[ {token} ]"
    return f"loss = {whole}"


def _where(part: Bound) -> str:
    """On whose rows a term counts, where that is not on all."""
    source = part.beside.get("source")
    return f" · 1[{source}]" if source else ""


def chosen(slots: Slots) -> list[tuple[str, Bound]]:
    """Every part with its symbol, from the loss down to the reward, then the slots that make the rows."""
    found = []
    for key in DOWNWARDS:
        spec = slots.get(key)
        many = spec if isinstance(spec, Sequence) else [spec] if spec is not None else []
        found += _numbered(SYMBOLS[key], many)
    return found


def legend(slots: Slots) -> list[Line]:
    """What each symbol of :func:`objective` stands for."""
    return [(symbol, meaning(part), call(part)) for symbol, part in chosen(slots)]


def meaning(part: Bound) -> str:
    """Its formula, or what its docstring begins with, with its values."""
    return with_values(formula(part.part) or gist(part.part), part)


def slots_of(row: Algorithm, registry: Registry) -> Slots:
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
    if "beta" in beside:
        beside["beta"] = coefficient(beside["beta"], HOOKS[hook].key)
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
    paragraphs = [" ".join(text.split()) for text in doc(part.target).split("\n\n")]
    return [clause.strip() for text in paragraphs for clause in _CLAUSE.split(text) if clause.strip()]
