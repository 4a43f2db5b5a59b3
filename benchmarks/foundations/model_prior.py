"""Model prior: right and spurious rewards, from a strong and from a weak start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

REWARDS = {
    "right": (),
    "random": (
        "rewards=[{name: random_reward, probability: 0.5}, {name: accuracy, weight: 0}]",
        "evaluation.metric=accuracy",
    ),
    "format": ("rewards=[format, {name: accuracy, weight: 0}]", "evaluation.metric=accuracy"),
    "wrong label": ("rewards=[wrong_label, {name: accuracy, weight: 0}]", "evaluation.metric=accuracy"),
}
STARTS = {"strong": (), "weak": ("trainer.max_steps=150",)}


def mean_before(record: Record) -> float:
    """Return the share of right samples before the training."""
    return float(record["held_out"]["mean_at_k"][0][1])


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw the learning curves, a panel per start."""
    panels = picture.subplots(1, 2, sharey=True)
    for axes, start in zip(panels, STARTS, strict=True):
        chosen = [{**r, "arm": r["arm"].partition(": ")[2]} for r in records if r["arm"].startswith(start)]
        mean_curves(axes, chosen, "held_out", "accuracy")
        axes.set(title=f"{start} start", xlabel="step", ylim=(0, 1.02))
    panels[0].set_ylabel("held-out accuracy, greedy")
    panels[0].legend(fontsize=8)


EXPERIMENT = Experiment(
    name="model_prior",
    title="Model prior: what a spurious reward does",
    arms=[
        Arm(f"{start}: {name}", changes, first) for start, first in STARTS.items() for name, changes in REWARDS.items()
    ],
    columns=[
        Column("greedy", lambda record: last(record, "accuracy")),
        Column("greedy before", lambda record: record["held_out"]["accuracy"][0][1]),
        Column("mean@4", lambda record: last(record, "mean_at_k")),
        Column("mean@4 before", mean_before),
    ],
    draw=draw,
)

if __name__ == "__main__":
    main(EXPERIMENT)
