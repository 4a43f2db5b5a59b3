"""A toy environment for reward models that write critiques: answers to sums, right and wrong."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_judge.toy_sums import MAX_SUMMAND, is_held_out
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
REQUEST = "="
"""The request for a critique."""


def critiqued_sums(
    *, train_rows: Count = 1024, show: Literal["pairs", "critiques"] = "pairs", seed: int = 0
) -> EnvironmentSpec:
    """Build answers to sums up to 20+20, each with a request for a critique: ``7+8=?``, ``16``, ``=`` → ``15-``.

    A critique is the right sum and ``+`` if the answer is equal to it, else ``-``. With `show: pairs` a row has the
    sum as ``prompt``, and ``chosen`` and ``rejected``: a right or a wrong answer with the request. With `show:
    critiques` a row is one answer: its ``demonstration`` is the critique, and ``answer`` too. One sum in eight is held
    out, by its hash.

    >>> spec = critiqued_sums(train_rows=1)
    >>> [message["content"] for message in spec.test[0]["chosen"]], len(spec.test)
    (['10', '='], 49)
    """
    pairs = [(a, b) for a in range(1, MAX_SUMMAND + 1) for b in range(1, MAX_SUMMAND + 1)]
    rng = random.Random(f"critiqued sums {seed}")
    known = [pair for pair in pairs if not is_held_out(*pair)]
    drawn = [rng.choice(known) for _ in range(train_rows)]
    fixed = random.Random("held-out critiqued sums")
    row = _pair if show == "pairs" else _critique
    held_out = [pair for pair in pairs if is_held_out(*pair)]
    return EnvironmentSpec(
        train=[row(*pair, rng) for pair in drawn],
        test=[row(*pair, fixed) for pair in held_out],
    )


def _wrong(a: int, b: int, rng: random.Random) -> int:
    """Return a wrong answer that is close to the right one."""
    return max(0, a + b + rng.choice((-10, -2, -1, 1, 2, 10)))


def _asked(answer: int) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": str(answer)}, {"role": "user", "content": REQUEST}]


def _prompt(a: int, b: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{a}+{b}=?"}]


def _pair(a: int, b: int, rng: random.Random) -> dict[str, Any]:
    return {"prompt": _prompt(a, b), "chosen": _asked(a + b), "rejected": _asked(_wrong(a, b, rng))}


def _critique(a: int, b: int, rng: random.Random) -> dict[str, Any]:
    answer = a + b if rng.random() < 0.5 else _wrong(a, b, rng)
    critique = f"{a + b}{'+' if answer == a + b else '-'}"
    return {"prompt": [*_prompt(a, b), *_asked(answer)], "demonstration": critique, "answer": critique}
