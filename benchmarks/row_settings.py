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
    "pass_at_k": Own(
        ["algorithm.advantage.threshold=1"],
        "counts right rows, so it must be told from which reward on a row is right; form alone, 0.2, is not",
    ),
}

LEFT_OUT: dict[str, str] = {
    "flash_rl": "weighs by what a second engine (vLLM, quantised) thought of each token, and here there is one engine",
}
"""Rows that cannot say anything on this task, with the reason."""

READING = (
    "As in the quickstart there is one update per generation: the policy that learns is the one that wrote, w = 1, and "
    "rows that differ only in w, in a clip or in what happens to clipped tokens take the same steps but for rounding. "
    "What is left to be told apart is Â, 1/Z and the extras. No row has a learning rate of its own: AdamW divides "
    "each gradient by its running size and the norm is clipped at 1, so a constant factor of the loss (sums over a "
    "sequence, 1/L) changes next to nothing."
)
"""What to know before the rows are compared; printed above the table."""

NOTES: dict[str, str] = {}
"""Why a row learned less than the others, from its formula; printed beneath the table."""
