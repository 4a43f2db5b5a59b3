"""Effect of stale samples on every algorithm: ``python benchmarks/staleness.py``.

Each algorithm is trained on the quickstart's task with `trainer.stale` of 0, 1, 2, 4 and 8. Starts are those of
`rows.py`, settings those of `row_settings.py`. A run is small: 4 prompts of 8 completions in 18 steps.

::

    benchmarks/results/
      staleness.jsonl   one line per algorithm, staleness and seed; existing lines are not measured again
      staleness.md      the table

Algorithms are measured one after the other, so an interrupted table has complete lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported

from row_settings import EARLIER, OWN
from rows import PLUGINS, ROOT, Job, Record, _metric, _portable, _settings_of, _train, measure, rows_of
from staleness_report import LEFT_OUT, report

from rlm_plugins import recipe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

STEPS, EVERY = 18, 6
SETTINGS = {"per_device_train_batch_size": 32, "save_strategy": "no"}
HELD_OUT = 128
FILE = "staleness.jsonl"


@dataclass(frozen=True)
class StaleJob(Job):
    """One run of one algorithm with stale samples.

    Args:
        stale: Optimizer steps by which the policy that samples is older.
    """

    stale: int = 0

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out / "runs" / (f"stale-{self.row}-{self.stale}-{self.seed}" if self.row else f"start-{self.seed}")

    def recipe(self, registry: Registry) -> recipe.Recipe:
        """Return the recipe of the run: one stage."""
        if not self.row:
            return super().recipe(registry)
        document = yaml_strict.read(self.lesson).data
        second = document["stages"][1]
        settings = {**second["trainer"], **SETTINGS, "max_steps": self.steps, "seed": self.seed, "stale": self.stale}
        row = {
            "name": "row",
            "model": {**second["model"], "name": "pretrained", "path": str(self.start)},
            "algorithm": self.row,
            "evaluation": {**document["evaluation"], "every": EVERY, "rows": HELD_OUT},
            "trainer": {key: value for key, value in settings.items() if key in _settings_of(self.row, registry)},
        }
        own = OWN[self.row].overrides if self.row in OWN else ()
        changes = [f"stages.0.{text.replace('{pool}', str(self.pool))}" for text in own]
        return recipe.load(self.lesson, [f"stages={json.dumps([row])}", *changes])


def measured(job: StaleJob, registry: Registry) -> Record:
    """Train one algorithm with stale samples."""
    from rlm_plugins.run.train import train

    if job.needs_pool and not (job.pool.parent / "done").exists():
        earlier = replace(job, row=EARLIER, stale=0)
        found = earlier.recipe(registry)
        body = {**found.bodies[0], "callbacks": [{"name": "keep_successes"}]}
        _train(train, recipe.load(job.lesson, [f"stages={json.dumps([body])}"]), registry, job.pool.parent)
    found = job.recipe(registry)
    stage = _portable(compose(found, registry, build_environment=False)[0].body, job.pool)
    began = time.process_time()
    run = _train(train, found, registry, job.folder)
    seconds = round(time.process_time() - began, 1)
    metric = f"held_out/{_metric(stage)}"
    curve = [[record["step"], record[metric]] for record in run.records() if metric in record]
    packages = json.loads((job.folder / "manifest.json").read_text())["packages"]
    known = {"row": job.row, "stale": job.stale, "seed": job.seed, "curve": curve, "seconds": seconds}
    return {**known, "packages": packages, "stage": {key: stage[key] for key in ("algorithm", "trainer")}}


def read(out: Path) -> list[Record]:
    """Return the existing records, without an incomplete last line of a killed process."""
    file = out / FILE
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write the table."""
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rows", help="algorithms, separated by commas (default: all that sample)")
    parser.add_argument("--stale", type=int, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of a run (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results", help="folder of the results")
    parser.add_argument("--lesson", type=Path, default=ROOT / "recipes/lessons/01-addition.yaml")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="begin no further run after this many minutes of CPU time"
    )
    options = parser.parse_args(arguments)
    registry = Registry(PLUGINS)
    rows = options.rows.split(",") if options.rows else [row for row in rows_of(registry) if row not in LEFT_OUT]
    task = {"lesson": options.lesson.resolve(), "out": options.out.resolve(), "steps": options.steps}
    known = {(record["row"], record["stale"], record["seed"]) for record in read(options.out)}
    jobs = [StaleJob(row, seed, stale=k, **task) for row in rows for k in options.stale for seed in options.seeds]
    for seed in options.seeds:
        start = StaleJob("", seed, **task)
        if not (start.start.parent / "done").exists():
            measure(start)
    for job in jobs:
        if (job.row, job.stale, job.seed) in known or time.process_time() > 60 * options.minutes:
            continue
        record = measured(job, registry)
        with (options.out / FILE).open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(
            f"{job.row} stale {job.stale} seed {job.seed}: {record['curve'][-1][1]:.3f} in {record['seconds']} s",
            flush=True,
        )
    print(report(read(options.out), options.out, rows_of(registry)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
