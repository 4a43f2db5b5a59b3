"""Length bias: do wrong answers grow under GRPO, and not under Dr. GRPO?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

STEPS = 10
"""Steps at the begin and at the end whose means are compared."""


def lengths_of(run: Any) -> Record:
    """Return the curves of the mean length of right and of wrong completions."""
    lines = run.records("lengths.jsonl")
    return {
        "lengths": {name: [[line["step"], line[name]] for line in lines if name in line] for name in ("right", "wrong")}
    }


def growth(record: Record, name: str) -> float:
    """Return the change of a mean length in tokens, from the first to the last steps."""
    values = [value for _, value in record["lengths"][name]]
    return fmean(values[-STEPS:]) - fmean(values[:STEPS]) if len(values) >= 2 * STEPS else math.nan


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw the lengths of right and of wrong completions over the steps."""
    panels = picture.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("wrong", "right"), strict=True):
        mean_curves(axes, records, "lengths", name)
        axes.set(title=f"tokens of {name} completions", xlabel="step")
    panels[0].legend(fontsize=8)


EXPERIMENT = Experiment(
    name="length_bias",
    title="Length bias",
    arms=[
        Arm("grpo"),
        Arm("token mean", ("algorithm.aggregator=token_mean",)),
        Arm("dr_grpo", ("algorithm={name: dr_grpo, advantage: {name: only_idle, scale: none}}",)),
    ],
    columns=[
        Column("growth of wrong, tokens", lambda record: growth(record, "wrong"), share=False),
        Column("growth of right, tokens", lambda record: growth(record, "right"), share=False),
        Column(
            "wrong beyond right, tokens", lambda record: growth(record, "wrong") - growth(record, "right"), share=False
        ),
        Column("greedy", lambda record: last(record, "accuracy")),
    ],
    draw=draw,
    own=lengths_of,
)

if __name__ == "__main__":
    main(EXPERIMENT)
