"""The objective of a stage in Unicode, composed from the docstrings of its parts.

The convention: the docstring of a part has one clause with its formula, ``symbol = …``, with the symbol of its hook. An
aggregator begins with its operation on ``x``, the loss of a token. A clause ends at a full stop or a colon, so
``ℓ = −min(w, cap) · Â: the weight is capped.`` is formula and meaning. The values of numeric knobs replace their names
(:mod:`rlm_plugins.report.part_text`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlm_plugins.algorithm import SLOTS, Algorithm
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.report.part_text import Slots, call, doc, number, numbered, parts_of, with_values
from rlm_plugins.report.text_layout import columns

_CLAUSE = re.compile(r"[.:](?=\s|$)")
_ASSIGNED = r"[ᵢₜ_a-z]* [−+]?= "


def gist(part: Part) -> str:
    """Return the first clause of a part's docstring."""
    return next(iter(_clauses(part)), "")


def formula(part: Part) -> str:
    """Return the clause of a part's docstring that is its formula; empty if it has none."""
    symbol = re.escape(HOOKS[part.hook].symbol.removeprefix("β"))
    clauses = _clauses(part)
    assigned = [clause for clause in clauses if re.search(rf"(?<!\w){symbol}{_ASSIGNED}", clause)]
    fallback = [clause for clause in clauses if re.match(rf"\w{_ASSIGNED}", clause)]
    return next(iter(assigned + fallback), "")


def objective(slots: Slots) -> str:
    """Return the minimized loss on one line."""
    weights = "".join(f"{symbol} · " for symbol, _ in numbered("c", slots["token_weights"]))
    terms = [(part, f" + {number(part.beta)} ".replace("+ -", "− "), symbol) for symbol, part in _penalties(slots)]
    costs = "".join(f"{sign}{x}{_indicator(part)}" for part, sign, x in terms if "aggregator" not in part.options)
    separate = "".join(f"{sign}{_separate_term(part, x)}" for part, sign, x in terms if "aggregator" in part.options)
    loss = slots["policy_loss"]
    policy = f"{weights}{_right_side(loss)}"
    if "aggregator" not in loss.options:
        return f"loss = {_aggregated(slots['aggregator'], f'{policy}{_indicator(loss)}{costs}')}{separate}"
    shared = f" + {_aggregated(slots['aggregator'], costs.removeprefix(' + '))}" if costs else ""
    return f"loss = {_separate_term(loss, policy)}{shared}{separate}"


def _penalties(slots: Slots) -> list[tuple[str, Bound]]:
    return numbered("Ω", slots["penalties"])


def _separate_term(part: Bound, token: str) -> str:
    """Return a term under an aggregator of its own, and the completions that it counts."""
    return _aggregated(part.options["aggregator"], token) + _indicator(part).replace(" · 1[", " over ").replace("]", "")


def _aggregated(aggregator: Bound, token: str) -> str:
    """Return an aggregator applied to the terms of a token."""
    total = with_values(gist(aggregator.part), aggregator)
    x = re.compile(r"(?<!\w)x(?!\w)")
    if not x.search(total):
        return f"{aggregator.part.name}[ {token} ]"
    return x.sub(lambda _: f"[ {token} ]", total)


def _indicator(part: Bound) -> str:
    """Return the indicator of the completions that a term is limited to; empty without a limit."""
    source, min_reward = part.options.get("source"), part.options.get("min_reward")
    limits = [*([source] if source else []), *([] if min_reward is None else [f"r ≥ {number(min_reward)}"])]
    return f" · 1[{', '.join(limits)}]" if limits else ""


def legend(slots: Slots) -> list[tuple[str, str, str]]:
    """Return each symbol of :func:`objective` with its meaning, and its part with the knobs."""
    return [(symbol, meaning(part), call(part)) for symbol, part in parts_of(slots)]


def with_legend(line: str, legend: Sequence[Sequence[str]]) -> str:
    """Return the objective and the meaning of its symbols as text; empty without an objective."""
    symbol_lines = [(symbol, part, meaning) for symbol, meaning, part in legend]
    return f"{line}\n{columns(symbol_lines)}".rstrip() if line else ""


def meaning(part: Bound) -> str:
    """Return the formula of a part, or the first clause of its docstring, with the values of its knobs."""
    return with_values(formula(part.part) or gist(part.part), part)


def slots_of(algorithm: Algorithm, registry: Registry) -> Slots:
    """Return the parts of an algorithm, bound to its knobs.

    Raises:
        RecipeError: The algorithm names an unknown part, or an unknown knob.
    """
    slots: dict[str, Any] = {}
    for hook, info in HOOKS.items():
        if info.key in SLOTS:
            value: Any = getattr(algorithm, info.key)
            specs = value if info.many else [value]
            parts = [_bound(registry, hook, spec) for spec in specs if spec is not None]
            slots[info.key] = parts if info.many else next(iter(parts), None)
    return slots


def _bound(registry: Registry, hook: str, spec: Any) -> Bound:
    knobs: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    options = {name: knobs.pop(name) for name in HOOKS[hook].options if name in knobs}
    part = registry.find(hook, knobs.pop("name"), where=HOOKS[hook].key)
    if "beta" in options:
        from rlm_plugins.recipe.part_lookup import coefficient  # keeps pydantic's recipe models out of `rlm plugins`

        options["beta"] = coefficient(options["beta"], HOOKS[hook].key)
    if "aggregator" in options:
        options["aggregator"] = _bound(registry, "rlm_aggregators", options["aggregator"])
    return replace(part.bind(knobs, where=HOOKS[hook].key), options=options)


def _right_side(part: Bound) -> str:
    """Return the right side of a part's formula; without one its name and data."""
    text = formula(part.part)
    if not text:
        return f"{part.part.name}({', '.join(part.part.required_data)})"
    return with_values(text.split("= ", 1)[1], part)


def _clauses(part: Part) -> list[str]:
    paragraphs = [" ".join(text.split()) for text in doc(part.target).split("\n\n")]
    return [clause.strip() for text in paragraphs for clause in _CLAUSE.split(text) if clause.strip()]
