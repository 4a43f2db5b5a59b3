"""RL against supervised fine-tuning: on the task, out of its distribution, and in what is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

SFT = (
    "algorithm=sft",
    "trainer={max_steps: 30, per_device_train_batch_size: 64, learning_rate: 5e-4, lr_scheduler_type: constant, "
    'gradient_checkpointing: false, save_strategy: "no"}',
)


def after(record: Record, name: str) -> float:
    """Return the score of a further held-out set after the training."""
    return float(record["suite"][name][-1])


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw the curve of the task, and the scores of the other sets before and after."""
    panels = picture.subplots(1, 3, sharey=True)
    mean_curves(panels[0], records, "held_out", "accuracy")
    panels[0].set(title="two digits: trained on", xlabel="step", ylabel="held-out accuracy", ylim=(0, 1.02))
    panels[0].legend(fontsize=8)
    for axes, name in zip(panels[1:], ("three_digits", "functions"), strict=True):
        for number, arm in enumerate(dict.fromkeys(record["arm"] for record in records)):
            for record in records:
                if record["arm"] == arm:
                    axes.plot([0, 1], record["suite"][name], color=f"C{number}", alpha=0.8, marker="o", markersize=3)
        axes.set(title=name.replace("_", " "), xticks=[0, 1], xticklabels=["before", "after"])
        axes.grid(alpha=0.3)


EXPERIMENT = Experiment(
    name="rl_and_sft",
    title="RL against supervised fine-tuning",
    arms=[
        Arm("RL"),
        Arm("SFT", SFT),
        Arm("SFT, answers alone", (*SFT, "environment.thinking=false")),
    ],
    columns=[
        Column("two digits", lambda record: last(record, "accuracy")),
        Column("three digits", lambda record: after(record, "three_digits")),
        Column("functions", lambda record: after(record, "functions")),
        Column("three digits before", lambda record: record["suite"]["three_digits"][0]),
        Column("functions before", lambda record: record["suite"]["functions"][0]),
    ],
    draw=draw,
)

if __name__ == "__main__":
    main(EXPERIMENT)
