"""Sharpening or discovery: pass@k of base and trained, on tasks that the base solves, and on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from experiment import START, Arm, Column, Experiment, Record
from measure import main

from rlm_plugins.evaluation.scores import pass_at

K = 64
KS = (1, 2, 4, 8, 16, 32, 64)
SETS = {"seen": "pairs of the demonstrations", "unseen": "other pairs", "three": "three functions in a row"}


def pass_at_k(record: Record, name: str, k: int) -> float:
    """Return pass@k over the prompts of a held-out set; NaN without it."""
    counts = record.get("sampled", {}).get(name)
    return fmean(pass_at([1.0] * right + [0.0] * (K - right), k) for right in counts) if counts else math.nan


def figure(name: str, k: int) -> Callable[[Record], float]:
    """Return the figure of a column."""
    return lambda record: pass_at_k(record, name, k)


def draw(picture: Any, records: Sequence[Record]) -> None:
    """Draw pass@k over k for each set, a line per arm and a band over its seeds."""
    panels = picture.subplots(1, len(SETS), sharey=True)
    for axes, (name, title) in zip(panels, SETS.items(), strict=True):
        for arm in dict.fromkeys(record["arm"] for record in records):
            rows = [[pass_at_k(record, name, k) for record in records if record["arm"] == arm] for k in KS]
            axes.plot(KS, [fmean(row) for row in rows], label=arm, linestyle="--" if arm == START else "-")
            axes.fill_between(KS, [min(row) for row in rows], [max(row) for row in rows], alpha=0.12)
        axes.set_xscale("log", base=2)
        axes.set(title=title, xlabel="k", ylim=(0, 1.02), xticks=KS, xticklabels=KS)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("pass@k")
    panels[0].legend(fontsize=8)


def add_new(records: Sequence[Record]) -> None:
    """Add ``new``: of the unseen prompts that the start never solved in 64 samples, the share that is solved now."""
    starts = {record["seed"]: record["sampled"]["unseen"] for record in records if record["arm"] == START}
    for record in records:
        base = starts.get(record["seed"], ())
        solved = [now > 0 for before, now in zip(base, record["sampled"]["unseen"], strict=False) if before == 0]
        record["new"] = fmean(solved) if solved else math.nan


EXPERIMENT = Experiment(
    name="discovery",
    title="Sharpening or discovery",
    arms=[
        Arm(START),
        Arm("seen", ("environment={name: functions, only: [ab, bc, ca]}",)),
        Arm("two"),
        Arm("one, two", ("environment={name: functions, depths: [1, 2]}",)),
        Arm("two, three", ("environment={name: functions, depths: [2, 3]}",)),
    ],
    columns=[
        Column("unseen, pass@64", figure("unseen", 64)),
        Column("unseen, pass@1", figure("unseen", 1)),
        Column("unseen, newly solved", lambda record: record.get("new", math.nan)),
        Column("seen, pass@1", figure("seen", 1)),
        Column("seen, pass@64", figure("seen", 64)),
        Column("three, pass@1", figure("three", 1)),
        Column("three, pass@64", figure("three", 64)),
        Column("one, pass@1", figure("one", 1)),
    ],
    draw=draw,
    k=K,
    derive=add_new,
)

if __name__ == "__main__":
    main(EXPERIMENT)
