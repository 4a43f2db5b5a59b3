"""Pictures of a run as PNG files: the learning curve, and pass@k before and after training."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors
from rlm_plugins.evaluation.sampled_scores import SampledScores, verdict
from rlm_plugins.messages import visible


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
    lines = [r for r in records if r.get("stage") == stage]
    held_out = [r for r in lines if r.get(f"held_out/{metric}") is not None and "held_out/kept_step" not in r]
    in_training = f"rewards/{metric}/mean"
    trained = [r for r in lines if r.get(in_training) is not None]
    if not held_out and not trained:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    if trained:
        label = visible(f"{metric} of training samples")
        steps, scores = zip(*map(itemgetter("step", in_training), trained), strict=True)
        axes.plot(steps, scores, color="0.7", label=label)
    if held_out:
        keys = "step", f"held_out/{metric}", "held_out/low", "held_out/high"
        steps, scores, lows, highs = zip(*map(itemgetter(*keys), held_out), strict=True)
        axes.fill_between(steps, lows, highs, alpha=0.25)
        axes.plot(steps, scores, marker="o", label=visible(f"held-out {metric} (95 % interval)"))
    axes.set(xlabel="step", ylabel="score", title=visible(f"{file.parent.name}: {stage}"))
    axes.grid(alpha=0.3)
    axes.legend()
    with file_errors(file):
        figure.savefig(file, dpi=120)
    return True


def pass_at_k_curves(before: SampledScores, after: SampledScores, file: Path) -> bool:
    """Draw pass@k over k of base and trained model, with 95 % intervals, and majority@k.

    Args:
        before: Scores of the base.
        after: Scores of the trained model.
        file: Path of the PNG.

    Returns:
        False if matplotlib is not installed (extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for scores, name, color in ((before, "base", "tab:gray"), (after, "trained", "tab:blue")):
        ks = range(1, scores.samples + 1)
        means, lows, highs = zip(*(scores.estimate("pass", k) for k in ks), strict=True)
        axes.fill_between(ks, lows, highs, alpha=0.2, color=color)
        axes.plot(ks, means, marker=".", color=color, label=f"pass@k, {name} (95 % interval)")
        majority = [scores.estimate("majority", k)[0] for k in ks]
        axes.plot(ks, majority, linestyle="--", color=color, label=f"majority@k, {name}")
    axes.set(xlabel="k", ylabel="score", title=visible(f"{file.parent.name}: {verdict(before, after)}"))
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend()
    with file_errors(file):
        figure.savefig(file, dpi=120)
    return True
