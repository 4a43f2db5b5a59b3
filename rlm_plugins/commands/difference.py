"""What one row of the table chooses differently from another, slot by slot and knob by knob."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from rlm_plugins.commands.formula import slots_of
from rlm_plugins.registry import Registry
from rlm_plugins.registry.parts import Bound
from rlm_plugins.rows import SLOTS, Row

Change = tuple[str, Any, Any]
"""The address under ``algorithm:`` (``advantage``, ``policy_loss.delta``, ``penalties.kl.beta``), before, after.

Of a knob the values; of a slot the parts, as text: ``clip(delta=3.0)``, empty where there is none.
"""


def differences(one: Row, other: Row, registry: Registry) -> list[Change]:
    """The steps from `one` to `other`, in the order a batch meets them.

    Raises:
        RecipeError: A row names a part nobody offers, or a knob it does not have.
    """
    before, after = slots_of(one, registry), slots_of(other, registry)
    engine = [("trainer", one.trainer, other.trainer)] if one.trainer != other.trainer else []
    return [*engine, *(change for slot in SLOTS for change in _slot(slot, before[slot], after[slot]))]


def call(part: Bound) -> str:
    """A part with what is not its default: ``clip(delta=3.0)``."""
    fields = part.part.knobs.model_fields
    turned = {name: value for name, value in part.knobs.items() if value != fields[name].default}
    beta = {"beta": part.beta} if part.part.hook == "rlm_penalties" else {}
    knobs = ", ".join(f"{name}={value}" for name, value in {**beta, **turned}.items())
    return f"{part.part.name}({knobs})" if knobs else part.part.name


def _slot(slot: str, before: Any, after: Any) -> Iterator[Change]:
    """The same part: knob by knob; another part: whole."""
    old, new = _by_name(before), _by_name(after)
    for name in (name for name in old if name in new):
        place = f"{slot}.{name}" if isinstance(before, list) else slot
        was, now = ({**part.knobs, "beta": part.beta} for part in (old[name], new[name]))
        yield from ((f"{place}.{knob}", was[knob], now[knob]) for knob in was if was[knob] != now[knob])
    gone = [call(part) for name, part in old.items() if name not in new]
    come = [call(part) for name, part in new.items() if name not in old]
    yield from ((slot, was, now) for was, now in zip_longest(gone, come, fillvalue=""))


def _by_name(parts: Any) -> dict[str, Bound]:
    listed = parts if isinstance(parts, list) else [parts]
    return {part.part.name: part for part in listed if part is not None}
