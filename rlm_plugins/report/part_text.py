"""Parts as text: their docstrings, the values of their knobs, and the differences between two sets of them.

A formula may spell a knob in Greek (ε_high for `epsilon_high`). The effective value of a knob that is null stands in
the docstring of its part: the knob in backquotes, then ``(default: …)`` with another knob or a value in backquotes.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlm_plugins.algorithm import SLOTS, base_name
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.signature import code_of
from rlm_plugins.report.text_layout import plain
from rlm_plugins.schedule import Schedule, as_recipe_value

Entry = dict[str, Any]
Slots = Mapping[str, Any]
"""Key of ``algorithm:`` → a part, None, or a list of parts."""

SYMBOLS = {hook.key: hook.symbol for hook in HOOKS.values()} | {"filters": "filter", "penalties": "Ω", "sampler": "x"}
"""Recipe key → the symbol of its parts in reports."""
_LOSS = ("aggregator", "policy_loss", "token_weights", "penalties", "importance", "advantage")
DOWNWARDS = (*_LOSS, *(key for key in reversed(SLOTS) if key not in _LOSS))
"""The slots from the loss down to the sampler."""
NONE = "–"

_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "lam": "λ", "mu": "μ", "tau": "τ"}
_UNBOUNDED = re.compile(r"min\(([^(),]+), ∞\)")
"""A minimum with infinity, which is its other argument."""
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


def folded(parts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return names and descriptions, with the conventions of an algorithm on one line below it."""
    listed = list(parts)
    algorithms = [name for name, _ in listed if "@" not in name]
    lines: list[tuple[str, str]] = []
    for name, description in listed:
        if base_name(name) in algorithms and "@" in name:
            continue
        conventions = [f"@{variant.partition('@')[2]}" for variant, _ in listed if variant.startswith(f"{name}@")]
        lines += [(name, description), *([("", " ".join(conventions))] if conventions else [])]
    return lines


# ---- values of knobs


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
    """Return a part with its settings, with values as a recipe spells them: ``clip(epsilon=0.2, delta=null)``."""
    settings = settings_of(part)
    values = ("null" if v is None else str(v).lower() if isinstance(v, bool) else v for v in settings.values())
    listed = ", ".join(f"{knob}={value}" for knob, value in zip(settings, values, strict=True))
    return f"{part.part.name}({listed})" if listed else part.part.name


def settings_of(part: Bound) -> dict[str, Any]:
    """Return every recipe key of a part with its value: its options (beta always), then its knobs."""
    beta = {"beta": part.beta} if "beta" in HOOKS[part.part.hook].options else {}
    options = {key: call(value) if isinstance(value, Bound) else value for key, value in part.options.items()}
    return {**beta, **options, **part.knobs}


# ---- parts of an equation


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


def changes(before: Slots, after: Slots) -> list[Entry]:
    """Return what differs between two mappings of slots to parts.

    Returns:
        ``symbol``, ``key``, ``name``, ``knob``, ``before``, ``after``. If the part itself changes, ``knob`` is null;
        else before and after are values of that knob.
    """
    return [change for old, new in matched_parts(before, after) for change in changes_of_part(old, new)]


def matched_parts(before: Slots, after: Slots) -> list[tuple[Bound | None, Bound | None]]:
    """Return old and new part per slot and name, from the loss down; None where there is none."""
    old_parts, new_parts = _parts_by_key(before), _parts_by_key(after)
    keys = sorted(old_parts | new_parts, key=lambda key: DOWNWARDS.index(key[0]))
    return [(old_parts.get(key), new_parts.get(key)) for key in keys]


def _parts_by_key(slots: Slots) -> dict[tuple[str, str, int], Bound]:
    """Return each part by its slot, name (in a list), and number of earlier parts of that name."""
    parts: dict[tuple[str, str, int], Bound] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for _, part in parts_of(slots):
        hook = HOOKS[part.part.hook]
        key = (hook.key, part.part.full_name if hook.many else "")
        parts[*key, counts[key]] = part
        counts[key] += 1
    return parts


def changes_of_part(old: Bound | None, new: Bound | None) -> Iterator[Entry]:
    """Yield the :func:`changes` between two parts of one slot."""
    part = old or new
    assert part is not None
    key = HOOKS[part.part.hook].key
    entry = {"symbol": SYMBOLS[key], "key": key, "name": part.part.name, "knob": None}
    if old is None or new is None or old.part.full_name != new.part.full_name:
        yield {**entry, "before": call(old) if old else None, "after": call(new) if new else None}
        return
    for knob in settings_of(old) | settings_of(new):
        if settings_of(old).get(knob) != settings_of(new).get(knob):
            yield {**entry, "knob": knob, "before": _value(old, knob), "after": _value(new, knob)}


def _value(part: Bound, knob: str) -> Any:
    """Return a value; null with its effective value in brackets."""
    value = as_recipe_value(settings_of(part).get(knob))
    default = effective(part, knob) if knob in part.knobs else value
    return f"null ({plain(default)})" if value is None and default is not None else value


def change_line(change: Entry) -> list[str]:
    """Return a change as cells: symbol, address, before, after."""
    of_part = change["knob"] is None
    address = change["key"] if of_part else f"{change['name']}.{change['knob']}"
    values = [NONE if of_part and change[side] is None else plain(change[side]) for side in ("before", "after")]
    return [change["symbol"], address, *values]
