"""Every algorithm on the quickstart's task, from the same start: ``python benchmarks/rows.py``.

The first stage of the lesson makes one supervised start per seed. From there each algorithm is trained with the
settings of the second stage; `row_settings.py` lists the exceptions and their reasons. A last stage of a few steps with
learning rate 0 samples from the result at temperature 1. So length and entropy are comparable for all algorithms, also
for those that do not sample.

::

    benchmarks/results/
      rows.jsonl    one line per algorithm and seed, with every setting; existing lines are not measured again
      rows.md       the table and its notes
      rows.png      the learning curves
      runs/         the runs themselves (not in git)

A new algorithm is measured without being named here. Results do not depend on the number of workers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported, which happens in the workers

from row_report import report
from row_settings import EARLIER, LEFT_OUT, OWN

from rlm_plugins import recipe
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import BUILTIN, Registry

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("process", "algorithms")
"""Plugin packages whose algorithms are measured, if they are installed."""
PLUGINS = [ROOT / "benchmarks/eight_bits.py"]
Record = dict[str, Any]
STEPS = 36
"""Three times the steps from no carries to nearly all of them: the rest shows if the result is stable."""
EVERY = 3
"""Steps between two evaluations."""


@dataclass(frozen=True)
class Job:
    """One run of one algorithm.

    Args:
        row: Name of the algorithm; "" for the start itself.
        seed: Of the start, the order of the prompts and the sampling.
        lesson: A recipe of two stages: one for the start, one for the algorithm.
        out: Folder of the results.
        steps: Optimizer steps.
        again: Measure again if there is a result.
        overrides: ``key=value`` for the second stage, beside those in `row_settings.py`.
    """

    row: str
    seed: int
    lesson: Path
    out: Path
    steps: int
    again: bool = False
    overrides: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out / "runs" / f"{self.row or 'start'}-{self.seed}"

    @property
    def start(self) -> Path:
        """Initial model of every algorithm with this seed."""
        return replace(self, row="").folder / "01-start" / "model"

    @property
    def pool(self) -> Path:
        """Correct completions of the algorithm `EARLIER` from the same start on the same prompts."""
        return self.out / "runs" / f"pool-{self.seed}-{self.steps}" / "successes.jsonl"

    @property
    def needs_pool(self) -> bool:
        """True if the algorithm replays from the pool."""
        return self.row in OWN and any("{pool}" in text for text in OWN[self.row].overrides)

    def recipe(self, registry: Registry) -> recipe.Recipe:
        """Return the recipe of the run."""
        document = yaml_strict.read(self.lesson).data
        first, second = document["stages"]
        if not self.row:
            first = {**first, "name": "start", "model": {**first["model"], "seed": self.seed}}
            first["trainer"] = {**first["trainer"], "seed": self.seed}
            return recipe.load(self.lesson, [f"stages={json.dumps([first])}"])
        trainer = {**second["trainer"], "max_steps": self.steps, "save_strategy": "no", "seed": self.seed}
        row = {
            "name": "row",
            "model": {**second["model"], "name": "pretrained", "path": str(self.start)},
            "algorithm": self.row,
            "evaluation": {**document["evaluation"], "every": EVERY},
            "trainer": {key: value for key, value in trainer.items() if key in _settings_of(self.row, registry)},
        }
        writes = {"max_steps": 4, "learning_rate": 0.0, "seed": 0}
        look = {
            **second,
            "name": "look",
            "speed": "none",  # TRL's entropy counts completions with advantage zero too
            "algorithm": "reinforce",
            "evaluation": None,
            "trainer": {**trainer, **writes},
        }
        own = OWN[self.row].overrides if self.row in OWN else ()
        changes = [f"stages.0.{text.replace('{pool}', str(self.pool))}" for text in (*own, *self.overrides)]
        return recipe.load(self.lesson, [f"stages={json.dumps([row, look])}", *changes])


def _settings_of(row: str, registry: Registry) -> set[str]:
    """Return the fields of `trainer:` that the trainer of an algorithm has."""
    part = registry.find("rlm_trainers", registry.find("rlm_algorithms", row).target.trainer)
    trainer: Any = part.bind({}, where=row).target
    return {field.name for field in fields(trainer.config_class())}


# ------------------------------------------------------------------ one run


def measure(job: Job) -> Record:
    """Train one algorithm, or return its existing record; runs in a worker."""
    import torch

    from rlm_plugins.run.train import train

    torch.set_num_threads(1)
    registry = Registry(PLUGINS)
    if job.needs_pool and (job.again or not (job.pool.parent / "done").exists()):
        earlier = replace(job, row=EARLIER, overrides=(*job.overrides, "callbacks=[keep_successes]"))
        _train(train, earlier.recipe(registry), registry, job.pool.parent)
    document = job.recipe(registry)
    if not job.row:
        _train(train, document, registry, job.folder)
        return {}
    stage = _portable(compose(document, registry, build_environment=False)[0].body, job.pool)
    if not job.again:
        for record in read(job.out):
            if (record["row"], record["seed"], record["stage"]) == (job.row, job.seed, stage):
                return record
    began = time.process_time()
    run = _train(train, document, registry, job.folder)
    seconds = round(time.process_time() - began, 1)
    records = run.records()
    held_out = [r for r in records if r["stage"] == "01-row" and f"held_out/{_metric(stage)}" in r]
    curve = [[r["step"], r[f"held_out/{_metric(stage)}"]] for r in held_out]
    looks = [r for r in records if r["stage"] == "02-look" and "completions/mean_length" in r]
    return {
        "row": job.row,
        "seed": job.seed,
        "before": curve[0][1],
        "after": curve[-1][1],
        "held_out_rows": held_out[-1]["held_out/rows"],
        "length": fmean(r["completions/mean_length"] for r in looks),
        "entropy": fmean(r.get("trl/entropy", r.get("entropy")) for r in looks),
        "seconds": seconds,
        "curve": curve,
        "packages": json.loads((job.folder / "manifest.json").read_text())["packages"],
        "stage": stage,
    }


def _train(train: Any, document: recipe.Recipe, registry: Registry, folder: Path) -> Any:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        return train(document, registry, folder)


def _portable(body: Any, pool: Path) -> Any:
    """Return a stage as plain JSON without local paths."""
    plain = json.loads(json.dumps(body).replace(json.dumps(str(pool)), '"the pool of this seed"'))
    plain["model"]["path"] = "the start of this seed"
    return plain


def _metric(stage: Record) -> str:
    return str(stage["evaluation"]["metric"])


# ------------------------------------------------------------------ all of them


def read(out: Path) -> list[Record]:
    """Return the existing records, oldest first, without an incomplete last line of a killed process."""
    file = out / "rows.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def rows_of(registry: Registry) -> list[str]:
    """Return the algorithms that can be measured, in the order of the table, without conventions."""
    named = [part.name for part in registry if part.hook == "rlm_algorithms" and part.plugin in (BUILTIN, *PACKAGES)]
    return [name for name in named if "@" not in name and name not in LEFT_OUT]


def work(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Record | None]]:
    """Run jobs in at most that many processes; yield None for a failed one, after printing its error."""
    if workers == 1:
        yield from ((job, _guarded(job)) for job in jobs)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_guarded, job): job for job in jobs}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _guarded(job: Job) -> Record | None:
    try:
        return measure(job)
    except Exception as error:
        problem = str(error) if isinstance(error, RlmError) else traceback.format_exc()
        sys.stderr.write(f"{job.folder.name} failed: {problem}\n")
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write table and figure; return 1 if an algorithm failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rows", help="algorithms, separated by commas (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps per algorithm (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results", help="folder of the results")
    parser.add_argument("--lesson", type=Path, default=ROOT / "recipes/lessons/01-addition.yaml")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override for all; requires its own --out",
    )
    parser.add_argument("--again", action="store_true", help="measure the named ones again, with their starts")
    options = parser.parse_args(arguments)
    known = rows_of(Registry())
    rows = options.rows.split(",") if options.rows else known
    task = {"lesson": options.lesson, "out": options.out.resolve(), "steps": options.steps, "again": options.again}
    starts = [Job("", seed, **task) for seed in options.seeds]
    missing = [job for job in starts if job.again or not (job.start.parent / "done").exists()]
    if any(record is None for _, record in work(missing, options.workers)):
        return 1
    order = [*known, *(row for row in rows if row not in known)]
    _tidy(options.out, order)
    overrides = tuple(options.set)
    # seeds first: a complete table early
    jobs = [Job(row, seed, overrides=overrides, **task) for seed in options.seeds for row in rows]
    failed = []
    for number, (job, record) in enumerate(work(jobs, options.workers), 1):
        if record is None:
            failed.append(job.folder.name)
            continue
        with (job.out / "rows.jsonl").open("a") as file:
            file.write(_line(record))
        line = f"{record['before']:.1%} -> {record['after']:.1%} in {record['seconds']:.0f} s"
        print(f"{number}/{len(jobs)}  {job.row} seed {job.seed}: {line}", flush=True)
    if len(failed) == len(jobs):
        return 1
    _tidy(options.out, order)
    print(report(read(options.out), options.out, known))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _tidy(out: Path, order: Sequence[str]) -> None:
    """Keep the newest complete line of each algorithm and seed, in the order of the table."""
    newest = {(record["row"], record["seed"]): record for record in read(out)}
    order = [*order, *dict.fromkeys(row for row, _ in newest if row not in order)]  # of packages not installed here
    lines = [newest[key] for key in sorted(newest, key=lambda key: (order.index(key[0]), key[1]))]
    (out / "rows.jsonl").write_text("".join(map(_line, lines)))


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
