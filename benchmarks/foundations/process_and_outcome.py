"""Process against outcome reward: four independent lines, judged together or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

SHARE = "rewards=[{name: right_lines, weight: 0}, {name: right_lines, as: share, pay: share}]"
STEPS = "algorithm.advantage={name: step_relative, alike: number, gamma: 0}"


def per_line(judge: str) -> tuple[str, ...]:
    """Return the overrides of a reward of each line, by a function."""
    return (f'algorithm.shapers=[{{name: per_step, by: "{judge}"}}]', STEPS)


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw the learning curves."""
    panels = picture.subplots(1, 2, sharey=True)
    for axes, name, title in zip(
        panels, ("right_lines", "share"), ("all lines right", "share of right lines"), strict=True
    ):
        mean_curves(axes, records, "held_out", name)
        axes.set(title=f"{title}, held out", xlabel="step", ylim=(0, 1.02))
    panels[0].legend(fontsize=8)


EXPERIMENT = Experiment(
    name="process_and_outcome",
    title="Process against outcome reward",
    arms=[
        Arm("outcome"),
        Arm("outcome, rate 3e-4", ("trainer.learning_rate=3e-4",)),
        Arm("share of lines", (SHARE,)),
        Arm("each line", per_line("rlm_process.sums:each_line")),
        Arm("form of each line", per_line("./judges.py:lenient")),
    ],
    columns=[
        Column("all lines right", lambda record: last(record, "right_lines")),
        Column("before", lambda record: record["held_out"]["right_lines"][0][1]),
        Column("lines right", lambda record: last(record, "share")),
    ],
    draw=draw,
)

if __name__ == "__main__":
    main(EXPERIMENT)
