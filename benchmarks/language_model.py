"""Four algorithms on a pre-trained language model, from one base: ``python benchmarks/language_model.py``.

Lessons 5 and 6 train SmolLM2-135M-Instruct on two tasks. Each algorithm is trained with their settings and three seeds.
Base and result are evaluated on the same held-out prompts: greedily, and by 8 sampled completions per prompt.

::

    benchmarks/results/
      language_model.jsonl  one line per task, algorithm and seed; existing lines are not measured again
      language_model.md     the table
      language_model.png    the training rewards

``--report`` writes the table and the picture from the existing lines.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported
os.environ["RLM_TRUST"] = "1"  # the lessons run files beside them

from language_model_report import report

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
RECIPES = {
    "largest": ROOT / "recipes/lessons/05-a-language-model.yaml",
    "product": ROOT / "recipes/lessons/06-format.yaml",
}
ALGORITHMS = ("grpo", "dr_grpo", "rloo", "ppo")
SEEDS = (1, 2, 3)
K = 8
"""Sampled completions per held-out prompt."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run; without an algorithm the evaluation of the base."""

    task: str
    algorithm: str = ""
    seed: int = 0

    @property
    def overrides(self) -> list[str]:
        """Changes of the recipe."""
        own = [f"algorithm={self.algorithm}", f"trainer.seed={self.seed}"] if self.algorithm else []
        return [*own, "trainer.save_strategy=no"]


def jobs() -> Iterator[Job]:
    """Yield the base of each task, then all runs, seed by seed."""
    yield from (Job(task) for task in RECIPES)
    for seed in SEEDS:
        yield from (Job(task, algorithm, seed) for algorithm in ALGORITHMS for task in RECIPES)


def measure(job: Job) -> Record:
    """Train and evaluate; runs in a process of its own."""
    import resource

    import torch
    from rlm_lab.evaluate import evaluate

    from rlm_plugins import recipe
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.registry import Registry
    from rlm_plugins.run.judgement import as_data
    from rlm_plugins.run.train import train

    torch.set_num_threads(1)
    file = RECIPES[job.task]
    if not job.algorithm:
        return {**vars(job), **_scores(as_data(evaluate(file, k=K), samples=0))}
    with tempfile.TemporaryDirectory() as folder:
        document = recipe.load(file, [*job.overrides, "evaluation=null"])
        registry = Registry(document.load, block=document.block)
        began = time.process_time()
        run = train(document, registry, Path(folder) / "run")
        seconds = round(time.process_time() - began, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rewards = [record["reward"] for record in run.records() if "reward" in record]
        scored = as_data(evaluate(run.folder, ["evaluation={}"], k=K), samples=0)
        packages = json.loads((run.folder / "manifest.json").read_text())["packages"]
        body = compose(document, registry, build_environment=False)[0].body
    facts = {"seconds": seconds, "peak": peak, "reward": rewards, "packages": packages}
    return {**vars(job), **_scores(scored), **facts, "stage": json.loads(json.dumps(body))}


def _scores(data: Record) -> Record:
    names = ("score", "low", "high", "rows", "k", "mean_at_k", "pass_at_k", "rewards")
    return {name: data[name] for name in names}


def read() -> list[Record]:
    """Return the existing records, without an incomplete last line of a killed process."""
    file = RESULTS / "language_model.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def main() -> None:
    """Measure what has no record yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="only write the table and the picture")
    arguments = parser.parse_args()
    done = {(record["task"], record["algorithm"], record["seed"]) for record in read()}
    missing = [job for job in jobs() if (job.task, job.algorithm, job.seed) not in done]
    for job in [] if arguments.report else missing:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            record = pool.apply(measure, (job,))
        with (RESULTS / "language_model.jsonl").open("a") as handle:
            handle.write(json.dumps(record) + "\n")
        print(job.task, job.algorithm or "base", job.seed, record["score"], record["mean_at_k"], flush=True)
    report(read(), RESULTS)


if __name__ == "__main__":
    main()
