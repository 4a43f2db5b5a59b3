"""A kind of answer: how its values are drawn, written in several notations, and changed into other values."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlm_audit.case import Case, Generator
from rlm_audit.mathematics.spelling import spell

Value = Any
Writer = Callable[[Value, random.Random], str | None]
"""Function of a value that returns its LaTeX; None: this value has no such notation."""


@dataclass(frozen=True)
class Subject:
    """A kind of answer.

    Args:
        draw: Function of a random state and a size that returns a value. Equal values must be ``==``.
        write: Writes the reference.
        notations: Name → writer of the same value.
        near_misses: Name → function that returns another value.
        wrong_texts: Name → writer of an answer that is wrong for this value.
        is_spelled: Whether answers get random LaTeX spellings.
    """

    draw: Callable[[random.Random, int], Value]
    write: Writer
    notations: Mapping[str, Writer] = field(default_factory=dict)
    near_misses: Mapping[str, Callable[[Value, random.Random], Value]] = field(default_factory=dict)
    wrong_texts: Mapping[str, Writer] = field(default_factory=dict)
    is_spelled: bool = True

    def generators(self, name: str) -> dict[str, Generator]:
        """Return the generators of all classes of this subject by name."""
        return {
            **{
                f"{name}: {key}": self._right(writer) for key, writer in {"as is": self.write, **self.notations}.items()
            },
            **{f"{name}, not: {key}": self._near_miss(change) for key, change in self.near_misses.items()},
            **{f"{name}, not: {key}": self._wrong(writer) for key, writer in self.wrong_texts.items()},
        }

    def _right(self, writer: Writer) -> Generator:
        def generate(rng: random.Random, size: int) -> Case | None:
            value = self.draw(rng, size)
            return self._case(value, writer(value, rng), rng, is_right=True)

        return generate

    def _near_miss(self, change: Callable[[Value, random.Random], Value]) -> Generator:
        def generate(rng: random.Random, size: int) -> Case | None:
            value = self.draw(rng, size)
            other = change(value, rng)
            if other is None or other == value:
                return None
            writers = [self.write, *self.notations.values()]
            return self._case(value, rng.choice(writers)(other, rng), rng, is_right=False)

        return generate

    def _wrong(self, writer: Writer) -> Generator:
        def generate(rng: random.Random, size: int) -> Case | None:
            value = self.draw(rng, size)
            return self._case(value, writer(value, rng), rng, is_right=False)

        return generate

    def _case(self, value: Value, text: str | None, rng: random.Random, *, is_right: bool) -> Case | None:
        gold = self.write(value, rng)
        if text is None or gold is None or (not is_right and text == gold):
            return None
        return Case({"answer": gold}, spell(text, rng) if self.is_spelled else text, is_right)
