"""Discount: γ from 0.95 to 1 with GAE, on completions of 34 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves


def gae(gamma: float, lam: float) -> tuple[str, ...]:
    """Return the overrides of an arm."""
    return (f"algorithm.advantage={{name: gae, gamma: {gamma}, lam: {lam}}}",)


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw accuracy and what the critic explains over the steps."""
    panels = picture.subplots(1, 2)
    mean_curves(panels[0], records, "held_out", "accuracy")
    mean_curves(panels[1], records, "logged", "critic/explained_variance")
    panels[0].set(title="held-out accuracy, greedy", xlabel="step", ylim=(0, 1.02))
    panels[1].set(title="explained variance of the critic", xlabel="step", ylim=(-1, 1))
    panels[0].legend(fontsize=8)


EXPERIMENT = Experiment(
    name="discount",
    title="Discount on long completions",
    arms=[
        Arm("γ 1", gae(1.0, 1.0)),
        Arm("γ 0.99", gae(0.99, 1.0)),
        Arm("γ 0.98", gae(0.98, 1.0)),
        Arm("γ 0.95", gae(0.95, 1.0)),
        Arm("γ 1, λ 0.95", gae(1.0, 0.95)),
    ],
    columns=[
        Column("greedy", lambda record: last(record, "accuracy")),
        Column("before", lambda record: record["held_out"]["accuracy"][0][1]),
        Column("explained variance", lambda record: last(record, "critic/explained_variance", "logged"), share=False),
    ],
    draw=draw,
    logged=("critic/explained_variance", "completions/mean_length"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
