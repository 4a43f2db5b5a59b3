"""What single rows say differently in the benchmark, and what there is to say about their results.

Everything else is the quickstart's: model, LoRA, learning rate, batch, rewards, problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Own(NamedTuple):
    """What a row needs beside its name.

    Args:
        overrides: ``key=value`` of its stage, as after ``rlm train RECIPE``.
        why: The reason, from its formula.
    """

    overrides: Sequence[str]
    why: str


CAREFUL = "environment.slip=0"
"""The start imitates a sloppy hand. Demonstrations that forget carries too would teach what the rewards punish."""

OWN: dict[str, Own] = {
    "sft": Own([CAREFUL], "learns from demonstrations alone: they are careful ones; 64 per step, as others write"),
}

LEFT_OUT: dict[str, str] = {
    "flash_rl": "weighs by what a second engine (vLLM, quantised) thought of each token, and here there is one engine",
}
"""Rows that cannot say anything on this task, with the reason."""

NOTES: dict[str, str] = {}
"""What a reader of the table would ask about a row; printed beneath it."""
