"""PPO on a reward model, with the KL, without, and from rankings: ``python benchmarks/rlhf.py``, minutes per seed.

Trains recipes/pipelines/rlhf.yaml and over_optimisation.yaml. Their first two stages are identical, so both start from
the same policy and the same reward model. `rlhf, K = 4` is rlhf.yaml with rankings of four summaries of as many texts.

::

    benchmarks/results/rlhf.jsonl     one line per recipe and seed; existing lines are not measured again
    recipes/pipelines/rlhf.png        score of the reward model, true score, KL
    benchmarks/results/runs/rlhf/     the runs themselves (not in git)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rlm_plugins import recipe
from rlm_plugins.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
PIPELINES = ROOT / "recipes" / "pipelines"
RESULTS = ROOT / "benchmarks" / "results"
RANKED = ("environment.ranked=4", "environment.train_rows=24576")
RUNS = {"rlhf": ("rlhf", ()), "over_optimisation": ("over_optimisation", ()), "rlhf, K = 4": ("rlhf", RANKED)}
"""Name of a run in the table → recipe and overrides."""
LAST = 10
"""Steps at the end whose mean is the result of a run."""
Record = dict[str, Any]


def measured(name: str, seed: int, runs: Path) -> Record:
    """Train one recipe and return its figures.

    Args:
        name: A key of `RUNS`.
        seed: Of data, initialization, order and sampling.
        runs: Folder of the runs.
    """
    from rlm_plugins.run.train import train

    file, changes = RUNS[name]
    seeds = [f"environment.seed={seed}", f"stages.0.model.seed={seed}", f"trainer.seed={seed}"]
    folder = runs / f"{name.replace(', K = ', '-ranked-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    train(recipe.load(PIPELINES / f"{file}.yaml", [*seeds, *changes]), Registry(), folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {"recipe": name, "seed": seed, "changes": list(changes), **figures(lines)}


def figures(lines: Sequence[Record]) -> Record:
    """Return score, true score and KL per step of PPO, and before and after on held-out texts, from a metrics log."""
    steps = [line for line in lines if line["stage"] == "03-ppo" and "reward" in line]
    judged = [line for line in lines if line["stage"] == "03-ppo" and "held_out/rows" in line]
    curve = [
        {
            "step": line["step"],
            "score": line["rewards/reward_model/mean"],
            "true": line["rewards/gist/mean"],
            "nats": line["penalties/kl"] * line["completions/mean_length"],
            "tokens": line["completions/mean_length"],
        }
        for line in steps
    ]
    pairs = [line["held_out/pair_accuracy"] for line in lines if "held_out/pair_accuracy" in line]
    held_out = [{"step": x["step"], "score": x["held_out/reward_model"], "true": x["held_out/gist"]} for x in judged]
    return {"pair_accuracy": pairs[-1] if pairs else None, "curve": curve, "held_out": held_out}


def come_to(record: Record) -> Record:
    """Return end, beginning and best of a run: on samples, and greedy on held-out texts."""
    curve, width = record["curve"], min(LAST, len(record["curve"]))
    means = [fmean(point["true"] for point in curve[i : i + width]) for i in range(len(curve) - width + 1)]
    ends = {
        f"{name}_{when}": fmean(p[name] for p in part)
        for when, part in (("before", curve[:3]), ("after", curve[-width:]))
        for name in ("score", "true", "nats")
    }
    greedy = {"held_out_before": record["held_out"][0]["true"], "held_out_after": record["held_out"][-1]["true"]}
    return {**ends, "best": max(means), **greedy}


def table(records: Sequence[Record]) -> str:
    """Return a Markdown table with one line per run."""
    rows = ["| recipe | seed | score | true score | best | nats | held out, greedy |", "|---|---|---|---|---|---|---|"]
    for record in records:
        end = come_to(record)
        moved = [f"{end[f'{name}_before']:.2f} → {end[f'{name}_after']:.2f}" for name in ("score", "true")]
        rows.append(
            f"| `{record['recipe']}` | {record['seed']} | {moved[0]} | {moved[1]} | {end['best']:.2f} "
            f"| {end['nats_after']:.2f} | {end['held_out_before']:.2f} → {end['held_out_after']:.2f} |"
        )
    return "\n".join(rows)


def draw(records: Sequence[Record], file: Path) -> None:
    """Draw three curves over the steps, one line per seed, each the mean of five steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    titles = {
        "score": "score of the reward model",
        "true": "true score",
        "nats": "KL, nats per answer",
    }
    for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for record in records:
            points = record["curve"]
            smooth = [fmean(p[name] for p in points[max(0, i - 4) : i + 1]) for i in range(len(points))]
            with_kl = record["recipe"] == "rlhf"
            label = ("KL in the reward" if with_kl else "no KL") if record["seed"] == records[0]["seed"] else None
            axes.plot([p["step"] for p in points], smooth, color="C0" if with_kl else "C3", alpha=0.8, label=label)
        axes.set(title=title, xlabel="step of PPO")
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.savefig(file, dpi=110)


def main() -> None:
    """Measure what is missing, then write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipes", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PIPELINES / "rlhf.png")
    arguments = parser.parse_args()
    file = arguments.out / "rlhf.jsonl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for seed in arguments.seeds:
        for name in arguments.recipes:
            if not any((record["recipe"], record["seed"]) == (name, seed) for record in known):
                known.append(measured(name, seed, arguments.out / "runs" / "rlhf"))
                with file.open("a") as handle:
                    handle.write(json.dumps(known[-1]) + "\n")
    known.sort(key=lambda record: (list(RUNS).index(record["recipe"]), record["seed"]))
    draw([record for record in known if record["recipe"] != "rlhf, K = 4"], arguments.picture)
    print(table(known))


if __name__ == "__main__":
    main()
