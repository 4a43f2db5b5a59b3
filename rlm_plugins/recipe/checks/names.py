"""Checks of the reward and source names in knobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from rlm_plugins.annotations import NameOf
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.registry.part import Bound


def names_in(bound: Bound, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the names that the knobs of a part hold, by their annotations (:class:`rlm_plugins.annotations.NameOf`).

    Args:
        bound: A part with its knobs.
        kind: ``reward`` or ``source``.

    Yields:
        Address inside the part (``.of[1]``), and the name.
    """
    for knob, field in bound.part.knobs.model_fields.items():
        yield from _names(field.rebuild_annotation(), bound.knobs[knob], NameOf(kind), f".{knob}")


def _names(hint: Any, value: Any, name_of: NameOf, where: str) -> Iterator[tuple[str, str]]:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated and name_of in arguments[1:]:
        if isinstance(value, str):
            yield where, value
    elif get_origin(hint) is Annotated:
        yield from _names(arguments[0], value, name_of, where)
    elif get_origin(hint) in (Union, UnionType):
        for member in arguments:
            yield from _names(member, value, name_of, where)
    elif isinstance(value, Mapping) and len(arguments) == 2:
        for key, entry in value.items():
            yield from _names(arguments[0], key, name_of, f"{where}.{key}")
            yield from _names(arguments[1], entry, name_of, f"{where}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str) and arguments:
        for number, entry in enumerate(value):
            yield from _names(arguments[0], entry, name_of, f"{where}[{number}]")


def check_reward_names(parts: Iterable[tuple[Bound, str]], labels: Sequence[str]) -> None:
    """Check that every reward that a knob names exists.

    Args:
        parts: Each with its address.
        labels: The labels of the rewards.

    Raises:
        RecipeError: It names the part and the rewards.
    """
    for bound, address in parts:
        for suffix, name in names_in(bound, "reward"):
            if name not in labels:
                raise RecipeError(
                    f"unknown reward '{name}' in `{bound.part.name}`",
                    where=address + suffix,
                    allowed=", ".join(labels) or "nothing: there are no rewards",
                    hint=nearest(name, labels) or "the name of a reward, or its label `as: …`",
                )
