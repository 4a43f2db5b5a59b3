"""Tricks and traps: normalization, clip, aggregation and overlong filtering, with four updates per generation batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiment import Arm, Column, Experiment, Record
from measure import main
from page import last, mean_curves

K = 4
LIMIT = "trainer.max_completion_length=30"


def right(record: Record) -> float:
    """Return the share of right samples of the held-out set, with enough tokens for every answer."""
    counts = record["sampled"]["all"]
    return fmean(counts) / K


def clipped(record: Record) -> float:
    """Return the mean share of clipped tokens."""
    curves = [record["logged"][f"policy_loss/clipped_{side}"] for side in ("low", "high")]
    return sum(fmean(value for _, value in curve) for curve in curves if curve) if any(curves) else math.nan


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw accuracy and entropy over the steps."""
    panels = picture.subplots(1, 2)
    mean_curves(panels[0], records, "held_out", "accuracy")
    mean_curves(panels[1], records, "logged", "entropy")
    panels[0].set(title="held-out accuracy, greedy, within the limit of the arm", xlabel="update", ylim=(0, 1.02))
    panels[1].set(title="entropy of the samples, nats per token", xlabel="update")
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)


EXPERIMENT = Experiment(
    name="tricks",
    title="Tricks and traps",
    arms=[
        Arm("grpo"),
        Arm("std of the batch", ("algorithm.advantage.scale=batch",)),
        Arm("no std", ("algorithm.advantage.scale=none",)),
        Arm("clip 0.2 / 0.28", ("algorithm.policy_loss.epsilon_high=0.28",)),
        Arm("no clip", ("algorithm.policy_loss=unclipped",)),
        Arm("token mean", ("algorithm.aggregator=token_mean",)),
        Arm("fixed length", ("algorithm.aggregator=fixed_length",)),
        Arm("limit 30", (LIMIT,)),
        Arm("limit 30, filtered", (LIMIT, "algorithm.token_weights=[mask_truncated]")),
    ],
    columns=[
        Column("samples right", right),
        Column("greedy", lambda record: last(record, "accuracy")),
        Column("entropy", lambda record: last(record, "entropy", "logged"), share=False),
        Column("tokens clipped", clipped),
    ],
    draw=draw,
    logged=("entropy", "policy_loss/clipped_low", "policy_loss/clipped_high", "completions/clipped_ratio"),
    k=K,
)

if __name__ == "__main__":
    main(EXPERIMENT)
