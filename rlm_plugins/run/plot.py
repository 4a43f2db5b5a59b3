"""The learning curve as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors


def learning_curve(records: Sequence[dict[str, Any]], stage: str, metric: str, file: Path) -> bool:
    """Draw the held-out score of a stage with its 95 % interval over its steps, and the same score in training.

    Args:
        records: The lines of metrics.jsonl.
        stage: Name of the stage to draw.
        metric: Label of the reward that is the score.
        file: Path of the PNG.

    Returns:
        False if there is no score, or matplotlib is not installed (extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    own = [r for r in records if r.get("stage") == stage]
    held_out = [r for r in own if r.get(f"held_out/{metric}") is not None]
    in_training = f"rewards/{metric}/mean"
    trained = [r for r in own if r.get(in_training) is not None]
    if not held_out and not trained:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    if trained:
        label = f"{metric} of training samples"
        axes.plot([r["step"] for r in trained], [r[in_training] for r in trained], color="0.7", label=label)
    if held_out:
        steps, scores = [r["step"] for r in held_out], [r[f"held_out/{metric}"] for r in held_out]
        axes.fill_between(
            steps, [r["held_out/low"] for r in held_out], [r["held_out/high"] for r in held_out], alpha=0.25
        )
        axes.plot(steps, scores, marker="o", label=f"held-out {metric} (95 % interval)")
    axes.set(xlabel="step", ylabel="score", title=f"{file.parent.name}: {stage}")
    axes.grid(alpha=0.3)
    axes.legend()
    with file_errors(file):
        figure.savefig(file, dpi=120)
    return True
