"""From GRPO to PPO, one symbol at a time: ``python benchmarks/turns.py``.

The last stage of every recipe of the lesson is trained from the same supervised start, one per seed.

::

    recipes/lessons/04-from-grpo-to-ppo/
      curves.jsonl   one line per recipe and seed; existing lines are not measured again
      curves.png     the learning curves
    benchmarks/results/runs/   the runs themselves (not in git)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import rows
from rows import Job

from rlm_plugins import recipe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.registry import Registry

Record = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
LESSON = ROOT / "recipes/lessons/04-from-grpo-to-ppo"
FILE = "curves.jsonl"


def turns(lesson: Path) -> list[Path]:
    """Return the recipes in the order of the lesson."""
    return sorted(lesson.glob("*.yaml"))


def last_stage(file: Path, start: Path, seed: int) -> recipe.Recipe:
    """Return a recipe's last stage alone, starting from a trained model."""
    document = yaml_strict.read(file).data
    stage = document["stages"][-1]
    stage["model"] = {**stage["model"], "name": "pretrained", "path": str(start)}
    stage["trainer"] = {**stage["trainer"], "seed": seed}
    return recipe.load(file, [f"stages={json.dumps([stage])}"])


def measure(file: Path, seed: int, runs: Path) -> Record:
    """Train one recipe once and return its curve."""
    from rlm_plugins.run.train import train

    start = Job("", seed, turns(file.parent)[0], runs, steps=0)
    if not (start.start.parent / "done").exists():
        rows.measure(start)
    folder = runs / "runs" / f"{file.stem}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        run = train(last_stage(file, start.start, seed), Registry(), folder)
    seconds = round(time.process_time() - began, 1)
    name = "held_out/accuracy"
    curve = [[record["step"], record[name]] for record in run.records() if name in record]
    return {"recipe": file.stem, "seed": seed, "curve": curve, "seconds": seconds}


def read(file: Path) -> list[Record]:
    """Return the existing records."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def curves(records: Sequence[Record]) -> dict[str, list[list[float]]]:
    """Return recipe → (step, mean over the seeds, lowest, highest), in the order of the lesson."""
    by_arm: dict[str, list[list[float]]] = {}
    for name in sorted({r["recipe"] for r in records}):
        runs = [dict(map(tuple, r["curve"])) for r in records if r["recipe"] == name]
        steps = sorted(set.intersection(*(set(run) for run in runs)))
        by_arm[name] = [[s, fmean(x := [run[s] for run in runs]), min(x), max(x)] for s in steps]
    return by_arm


def table(records: Sequence[Record]) -> str:
    """Return a table with a line per recipe: the mean at each evaluation, the seeds at the last."""
    by_arm = curves(records)
    steps = sorted({step for points in by_arm.values() for step, *_ in points})
    lines = [
        f"| recipe | {' | '.join(f'step {step}' for step in steps)} | seeds at the end |",
        f"|---|{'--:|' * len(steps)}---|",
    ]
    for name, points in by_arm.items():
        means = {step: f"{mean:.3f}" for step, mean, *_ in points}
        ends = [f"{r['curve'][-1][1]:.3f}" for r in records if r["recipe"] == name]
        lines.append(f"| {name} | {' | '.join(means.get(step, '') for step in steps)} | {' · '.join(ends)} |")
    return "\n".join(lines)


def draw(records: Sequence[Record], file: Path) -> None:
    """Draw the means over the seeds, and the range from the lowest to the highest."""
    from matplotlib.figure import Figure

    by_arm = curves(records)
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey=True).flat
    for axes, (name, points) in zip(panels, by_arm.items(), strict=False):
        for other in by_arm.values():
            axes.plot([p[0] for p in other], [p[1] for p in other], color="0.85", linewidth=1)
        steps, means, low, high = zip(*points, strict=True)
        axes.fill_between(steps, low, high, alpha=0.25)
        axes.plot(steps, means, marker="o", markersize=3)
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.3)
    figure.supxlabel("step")
    figure.supylabel("held-out accuracy")
    figure.savefig(file, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, then draw."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lesson", type=Path, default=LESSON)
    parser.add_argument("--runs", type=Path, default=ROOT / "benchmarks/results", help="folder of the runs")
    options = parser.parse_args(arguments)
    file = options.lesson / FILE
    for seed in options.seeds:
        for turn in turns(options.lesson):
            if any((r["recipe"], r["seed"]) == (turn.stem, seed) for r in read(file)):
                continue
            record = measure(turn, seed, options.runs.resolve())
            with file.open("a") as lines:
                lines.write(json.dumps(record, ensure_ascii=False) + "\n")
            print(f"{turn.stem} seed {seed}: {record['curve'][-1][1]:.1%} in {record['seconds']:.0f} s", flush=True)
    draw(read(file), options.lesson / "curves.png")
    print(table(read(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
