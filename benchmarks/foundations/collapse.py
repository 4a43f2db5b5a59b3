"""Collapse of rewards without labels, and what announces it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

VOTES = ("rewards=[majority_vote, {name: accuracy, weight: 0}]", "evaluation.metric=accuracy")
STARTS = {"150": ("trainer.max_steps=150",), "200": ("trainer.max_steps=200",), "300": ()}
FIRST = 3
"""Steps at the begin over which an indicator is averaged."""


def begin(record: Record, name: str) -> float:
    """Return the mean of a logged metric over the first steps: before the policy has changed much."""
    return fmean(value for _, value in record["logged"][name][:FIRST])


def gain(record: Record) -> float:
    """Return the change of the held-out accuracy."""
    curve = record["held_out"]["accuracy"]
    return float(curve[-1][1] - curve[0][1])


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw accuracy and agreement over the steps, and the gain over the agreement at the begin."""
    panels = picture.subplots(1, 3)
    mean_curves(panels[0], records, "held_out", "accuracy")
    mean_curves(panels[1], records, "logged", "majority_vote/agreement")
    for number, arm in enumerate(dict.fromkeys(record["arm"] for record in records)):
        chosen = [record for record in records if record["arm"] == arm]
        at = [begin(record, "majority_vote/agreement") for record in chosen]
        panels[2].plot(at, [gain(record) for record in chosen], "o", color=f"C{number}")
    panels[0].set(title="held-out accuracy, greedy", xlabel="step", ylim=(0, 1.02))
    panels[1].set(title="agreement of the eight samples", xlabel="step", ylim=(0, 1.02))
    panels[2].set(title="gain of accuracy", xlabel="agreement in the first three steps")
    panels[2].axhline(0, color="black", linewidth=0.6)
    panels[2].grid(alpha=0.3)
    panels[0].legend(fontsize=7)


EXPERIMENT = Experiment(
    name="collapse",
    title="Collapse of rewards without labels",
    arms=[
        *(Arm(f"votes, start of {steps} steps", VOTES, first) for steps, first in STARTS.items()),
        Arm("self-certainty, 300", ("rewards.0.weight=0", "algorithm.shapers=[self_certainty]")),
    ],
    columns=[
        Column("greedy", lambda record: last(record, "accuracy")),
        Column("before", lambda record: record["held_out"]["accuracy"][0][1]),
        Column("agreement, first 3 steps", lambda record: begin(record, "majority_vote/agreement")),
        Column("agreement, last", lambda record: last(record, "majority_vote/agreement", "logged")),
        Column("entropy, first 3 steps", lambda record: begin(record, "entropy"), share=False),
        Column("entropy, last", lambda record: last(record, "entropy", "logged"), share=False),
    ],
    draw=draw,
    logged=("majority_vote/agreement", "entropy"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
