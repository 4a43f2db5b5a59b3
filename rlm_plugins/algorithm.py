"""An algorithm as data: one choice for every symbol of the equation."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

Spec = str | Mapping[str, Any] | None
"""A part by name, a part with knobs (``{"name": "clip", "epsilon": 0.2}``), or no part."""


@dataclass(frozen=True)
class Algorithm:
    """One published algorithm, or yours.

    Args:
        about: A description of one or two sentences.
        source: The definition (arXiv number, equation).
        pitfalls: Known failure modes, and differences between libraries.
        trainer: The trainer that runs it (hook ``rlm_trainers``).
        family: Its class in surveys; `rlm algorithms` groups by it, families in the order of :data:`FAMILIES`.
        names: Slot, or part of a slot that has several → the source's name for it and for its knobs.

    ``file`` and ``line`` are the place of its definition. The other fields are the slots of the equation; each names
    a part of the hook with the same recipe key. Keys that a hook keeps beside the knobs (``beta`` of a penalty,
    ``num_completions`` of a rollout source) are given there as well.
    """

    about: str
    source: str
    pitfalls: str = ""
    trainer: str = "grpo"
    family: str = "critic-free policy gradient"
    names: Mapping[str, str] = field(default_factory=dict)
    sampler: Spec = None
    rollouts: Sequence[Spec] = ()
    shapers: Sequence[Spec] = ()
    filters: Sequence[Spec] = ()
    advantage: Spec = None
    importance: Spec = None
    policy_loss: Spec = None
    token_weights: Sequence[Spec] = ()
    penalties: Sequence[Spec] = ()
    aggregator: Spec = None

    file: str = field(init=False, repr=False, compare=False)
    line: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename in ("<string>", __file__, dataclasses.__file__):
            frame = frame.f_back  # a dataclass's own __init__ has no file
        object.__setattr__(self, "file", frame.f_code.co_filename)
        object.__setattr__(self, "line", frame.f_lineno)

    def slots(self) -> dict[str, Spec | Sequence[Spec]]:
        """Return recipe key → the choice of this algorithm.

        >>> Algorithm(about="", source="", advantage="gae").slots()["advantage"]
        'gae'
        """
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in SLOTS}


def variant(algorithm: Algorithm, *, about: str, source: str, pitfalls: str = "", **slots: Any) -> Algorithm:
    """Return `algorithm` as a library implements it: with other `slots`, and the paper's names for the rest."""
    names = {slot: name for slot, name in algorithm.names.items() if slot not in slots}
    return dataclasses.replace(algorithm, about=about, source=source, pitfalls=pitfalls, names=names, **slots)


def read_algorithms(*tables: Path) -> dict[str, Algorithm]:
    """Return name → algorithm of tables of TOML, each with its place there.

    An entry has the arguments of :class:`Algorithm`; the text "null" stands for None. An entry ``NAME@LIBRARY`` has
    those of :func:`variant`, for the algorithm ``NAME`` of the same tables.

    Args:
        tables: Files, an algorithm before its variants.
    """
    algorithms: dict[str, Algorithm] = {}
    for file in tables:
        text = file.read_text(encoding="utf-8")
        for name, entry in tomllib.loads(text).items():
            values = _values(entry)
            algorithm = variant(algorithms[base_name(name)], **values) if "@" in name else Algorithm(**values)
            object.__setattr__(algorithm, "file", str(file))
            object.__setattr__(algorithm, "line", text[: text.index(f'["{name}"]')].count("\n") + 1)
            algorithms[name] = algorithm
    return algorithms


def _values(table: Any) -> Any:
    """Return a table of TOML with tuples in place of lists, and None for "null", which TOML does not have."""
    if isinstance(table, dict):
        return {key: _values(value) for key, value in table.items()}
    if isinstance(table, list):
        return tuple(map(_values, table))
    return None if table == "null" else table


def base_name(name: str) -> str:
    """Return the name of the algorithm that an implementation variant belongs to: the part before the ``@``.

    >>> base_name("grpo@trl"), base_name("acme/grpo@mine"), base_name("grpo")
    ('grpo', 'acme/grpo', 'grpo')
    """
    return name.partition("@")[0]


_TEXT = ("about", "source", "pitfalls", "trainer", "family", "names")
SLOTS: tuple[str, ...] = tuple(f.name for f in fields(Algorithm) if f.init and f.name not in _TEXT)
"""The recipe keys under ``algorithm:``, in the order in which a batch passes through them."""

FAMILIES = ("with a critic", "critic-free policy gradient", "off-policy and supervised")
"""Families in the order of the survey (arXiv 2509.08827); an unlisted family comes last."""
