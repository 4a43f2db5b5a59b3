"""The figure of `grpo_speed.py`: the time of a step relative to stock TRL, arm by arm."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from speed_arms import DEFAULT, OURS
from speed_meter import PARTS
from speed_report import Record, seconds, tuned


def draw(found: Record, file: Path) -> bool:
    """Draw a bar per arm and workload: its time relative to stock TRL.

    Returns:
        False if matplotlib is not installed (extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    works = found["workloads"]
    figure = Figure(figsize=(1.1 * len(works) + 1.2, 3.2), layout="constrained")
    axes = figure.subplots()
    for at, work in enumerate(works.values()):
        whole = median(seconds(work, DEFAULT))
        for side, arm in enumerate((DEFAULT, tuned(work)[0], OURS)):
            if side == 1 and arm == DEFAULT:
                continue  # measured with one setting only
            base = 0.0
            for part, color in zip(PARTS, ("tab:orange", "tab:grey", "tab:blue"), strict=True):
                share = median(seconds(work, arm, part)) / whole
                label = part if at == side == 0 else None
                axes.bar(at + 0.28 * (side - 1), share, 0.25, base, color=color, label=label)
                base += share
        axes.plot([at + 0.14, at + 0.42], [sum(work["least"].values()) / whole] * 2, color="black", linewidth=1)
    axes.set_xticks(range(len(works)), list(works))
    axes.set_ylabel("time of a step, relative to stock")
    axes.set_title("stock TRL, tuned, ours; line: lower bound of the machine", fontsize=9)
    figure.legend(fontsize=8, loc="outside right upper")
    figure.savefig(file, dpi=140)
    return True
