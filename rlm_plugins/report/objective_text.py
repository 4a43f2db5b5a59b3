"""Parts as text: values of knobs, symbols, and the objective of a stage in Unicode, from the docstrings of its parts.

A formula may spell a knob in Greek (ε_high for `epsilon_high`). The effective value of a knob that is null stands in
the docstring of its part: the knob in backquotes, then ``(default: …)`` with another knob or a value in backquotes.

The convention: the docstring of a part has one clause with its formula, ``symbol = …``, with the symbol of its hook. An
aggregator begins with its operation on ``x``, the loss of a token. A clause ends at a full stop or a colon, so
``ℓ = −min(w, cap) · Â: the weight is capped.`` is formula and meaning. Definitions follow after ``, with``. The values
of numeric knobs replace their names, and of the cases of a knob, ``{gamma null → π; else → π / (π + γ)}``, the one in
force is shown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.registry import Registry
from rlm_plugins.registry.contract import code_of
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.report.text_layout import columns
from rlm_plugins.specs import SLOTS, Algorithm

Entry = dict[str, Any]
Slots = Mapping[str, Any]
"""Key of ``algorithm:`` → a part, None, or a list of parts."""

SYMBOLS = {hook.key: hook.symbol for hook in HOOKS.values()} | {"filters": "filter", "penalties": "Ω", "sampler": "x"}
"""Recipe key → the symbol of its parts in reports."""
_LOSS = ("aggregator", "policy_loss", "token_weights", "penalties", "importance", "advantage")
DOWNWARDS = (*_LOSS, *(key for key in reversed(SLOTS) if key not in _LOSS))
"""The slots from the loss down to the sampler."""
_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "lam": "λ", "mu": "μ", "tau": "τ"}
_UNBOUNDED = re.compile(r"min\(([^(),]+), ∞\)")
"""A minimum with infinity, which is its other argument."""
_CASES = re.compile(r"(\{(\w+) ([^{}]*→[^{}]*)\})")
_DEFAULT = r"`{}` \(default: `([^`]+)`"


def doc(target: Any) -> str:
    """Return the docstring up to its doctests."""
    documented = target if inspect.isroutine(target) or inspect.isclass(target) else code_of(target)
    return (inspect.getdoc(documented) or "").split(">>>")[0].strip()


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its period.

    >>> first_sentence("A bonus, cf. arXiv 1.2. More.")
    'A bonus, cf. arXiv 1.2'
    """
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"\.(?=\s+[^a-z0-9]|$)", paragraph)[0]


def about(part: Part) -> str:
    """Return one line on a part or an algorithm."""
    return first_sentence(doc(part.target)) if callable(part.target) else str(part.target.about)


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
    default = re.search(_DEFAULT.format(re.escape(knob)), " ".join(doc(part.part.target).split()))
    if default is None:
        return None
    return effective(part, default[1]) if default[1] in part.knobs else default[1]


def with_values(text: str, part: Bound) -> str:
    """Return `text` with the values of numeric knobs in place of their names, and of cases the one in force."""
    for cases, choice, listed in _CASES.findall(text):
        by_value = dict(case.split(" → ") for case in listed.split("; "))
        text = text.replace(cases, by_value.get(_in_recipe(part.knobs[choice])) or by_value["else"])
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
    """Return a part with its settings, with values as a recipe spells them: ``clip(epsilon=0.2, delta=null)``."""
    settings = settings_of(part)
    listed = ", ".join(f"{knob}={_in_recipe(value)}" for knob, value in settings.items())
    return f"{part.part.name}({listed})" if listed else part.part.name


def _in_recipe(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(part: Bound) -> dict[str, Any]:
    """Return every recipe key of a part with its value: its options (beta always), then its knobs."""
    beta = {"beta": part.beta} if "beta" in HOOKS[part.part.hook].options else {}
    options = {key: call(value) if isinstance(value, Bound) else value for key, value in part.options.items()}
    return {**beta, **options, **part.knobs}


def numbered(symbol: str, parts: Sequence[Bound]) -> list[tuple[str, Bound]]:
    """Return the parts with the symbol c if there is one of them, c₁, c₂, … for several."""
    return [(symbol if len(parts) == 1 else symbol + chr(0x2080 + n), part) for n, part in enumerate(parts, 1)]


def parts_of(slots: Slots) -> list[tuple[str, Bound]]:
    """Return every part with its symbol, from the loss down."""
    parts: list[tuple[str, Bound]] = []
    for key in DOWNWARDS:
        spec = slots.get(key)
        specs = spec if isinstance(spec, Sequence) else [spec]
        parts += numbered(SYMBOLS[key], [part for part in specs if part is not None])
    return parts


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
    penalties = numbered("Ω", slots["penalties"])
    terms = [(part, f" + {number(part.beta)} ".replace("+ -", "− "), symbol) for symbol, part in penalties]
    costs = "".join(f"{sign}{x}{_indicator(part)}" for part, sign, x in terms if "aggregator" not in part.options)
    separate = "".join(f"{sign}{_separate_term(part, x)}" for part, sign, x in terms if "aggregator" in part.options)
    loss = slots["policy_loss"]
    policy = f"{weights}{_right_side(loss)}"
    if "aggregator" not in loss.options:
        return f"loss = {_aggregated(slots['aggregator'], f'{policy}{_indicator(loss)}{costs}')}{separate}"
    shared = f" + {_aggregated(slots['aggregator'], costs.removeprefix(' + '))}" if costs else ""
    return f"loss = {_separate_term(loss, policy)}{shared}{separate}"


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
    """Return the parts of an algorithm, bound to its knobs."""
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
        from rlm_plugins.recipe.part_lookup import coefficient  # keeps pydantic's recipe models out of `rlm explain`

        options["beta"] = coefficient(options["beta"], HOOKS[hook].key)
    if "aggregator" in options:
        options["aggregator"] = _bound(registry, "rlm_aggregators", options["aggregator"])
    return replace(part.bind(knobs, where=HOOKS[hook].key), options=options)


def _right_side(part: Bound) -> str:
    """Return the right side of a part's formula; without one its name and data."""
    text = formula(part.part)
    if not text:
        return f"{part.part.name}({', '.join(part.part.required_data)})"
    return with_values(text, part).split("= ", 1)[1].split(", with ")[0]


def _clauses(part: Part) -> list[str]:
    paragraphs = [" ".join(text.split()) for text in doc(part.target).split("\n\n")]
    return [clause.strip() for text in paragraphs for clause in _CLAUSE.split(text) if clause.strip()]
