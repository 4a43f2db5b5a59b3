"""An experiment: arms × seeds of one recipe, measured once each: ``python benchmarks/foundations/discovery.py`` …

The first stage of ``NAME.yaml`` makes the start of a seed, the second is the training that is compared. An arm
overrides keys of either. Arms with the same first stage begin from the same weights.

::

    benchmarks/results/
      foundations/NAME.jsonl   one line per arm and seed; a line made with other settings is measured again
      foundations/NAME.png     the picture
      foundations.md           the page: its table of this experiment
      runs/foundations/        the runs themselves (not in git)
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported

from rlm_plugins import recipe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.registry import Registry

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SEEDS = (0, 1, 2)
START = "start"
"""Arm that is the start itself: it is sampled from, and not trained."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One setting that is compared.

    Args:
        name: In table and picture.
        overrides: ``key=value`` of the second stage.
        start: ``key=value`` of the first stage.
    """

    name: str
    overrides: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        title: Its heading.
        value: Figure of a record; NaN if it has none.
        share: True for a share, printed in percent.
    """

    title: str
    value: Callable[[Record], float]
    share: bool = True


@dataclass(frozen=True)
class Experiment:
    """Arms on one recipe, with the table and the picture that compare them.

    Args:
        name: Of recipe, records and picture.
        title: Heading of the picture.
        arms: What is compared; differences are those from the first.
        columns: Of the table; the first is compared between arms.
        draw: Draws the records into a figure of matplotlib.
        logged: Names of logged metrics whose curves are kept.
        k: Completions sampled per held-out prompt of each set, before and after training; 0: none.
        own: Further figures of a finished run.
        derive: Adds figures to the records that need several of them.
    """

    name: str
    title: str
    arms: Sequence[Arm]
    columns: Sequence[Column]
    draw: Callable[[Any, Sequence[Record]], None]
    logged: Sequence[str] = ()
    k: int = 0
    own: Callable[[Any], Record] = field(default=lambda run: {})
    derive: Callable[[Sequence[Record]], None] = field(default=lambda records: None)

    @property
    def recipe(self) -> Path:
        """Recipe with the start and the training."""
        return HERE / f"{self.name}.yaml"

    def sources(self) -> list[str]:
        """Return the text of the recipe and of each Python file that it loads."""
        files = [HERE / name for name in yaml_strict.read(self.recipe).data.get("plugins", {}).get("load", ())]
        return [file.read_text() for file in (self.recipe, *files)]


@dataclass(frozen=True)
class Job:
    """One arm with one seed."""

    experiment: Experiment
    arm: Arm
    seed: int
    out: Path
    overrides: tuple[str, ...] = ()

    @property
    def start(self) -> Path:
        """Folder of the run that makes the start."""
        return self._folder(f"start-{_digest(self.arm.start, self.overrides, *self.experiment.sources())}")

    @property
    def folder(self) -> Path:
        """Folder of the run of the arm."""
        return self._folder("".join(letter if letter.isalnum() else "-" for letter in self.arm.name))

    @property
    def key(self) -> str:
        """Digest of every setting: a record with another one is measured again."""
        return _digest(*self.experiment.sources(), self.arm, self.overrides, self.experiment.k)

    def _folder(self, name: str) -> Path:
        return self.out / "runs/foundations" / f"{self.experiment.name}-{name}-{self.seed}"

    def recipes(self) -> tuple[recipe.Recipe, recipe.Recipe]:
        """Return the recipes of the start and of the arm."""
        first, second = yaml_strict.read(self.experiment.recipe).data["stages"]
        first = {**first, "model": {**first["model"], "seed": self.seed}}
        model = {"name": "pretrained", "path": str(self.start / "01-start/model"), **second.get("model", {})}
        second = {**second, "model": model}
        return self._load(first, self.arm.start), self._load(second, self.arm.overrides)

    def _load(self, stage: Record, overrides: Sequence[str]) -> recipe.Recipe:
        changes = [f"stages.0.{text}" for text in (*overrides, *self.overrides, f"trainer.seed={self.seed}")]
        return recipe.load(self.experiment.recipe, [f"stages={json.dumps([stage])}", *changes])


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def measure(job: Job) -> Record:
    """Train an arm, and return its record."""
    began = time.process_time()
    start, arm = job.recipes()
    if not (job.start / "01-start/done").exists():
        _train(start, job.start)
    seconds = {"start_seconds": round(time.process_time() - began, 1)}
    began = time.process_time()
    known: Record = {"arm": job.arm.name, "seed": job.seed, "key": job.key, **seconds}
    if job.arm.name == START:
        return {**known, "sampled": sampled(job, job.start)}
    run = _train(arm, job.folder)
    lines = run.records()
    metrics = sorted({name for line in lines for name in line if name.startswith("held_out/")})
    suite = [line["suite"] for line in run.records("evaluations.jsonl") if line.get("suite")]
    return {
        **known,
        "seconds": round(time.process_time() - began, 1),
        "held_out": {name[9:]: _curve(lines, name) for name in metrics},
        "suite": {name: [found[name][0] for found in suite] for name in (suite[0] if suite else ())},
        "logged": {name: _curve(lines, name) for name in job.experiment.logged},
        "sampled": sampled(job, job.folder),
        **job.experiment.own(run),
    }


def _curve(lines: Sequence[Record], name: str) -> list[list[float]]:
    return [[line["step"], float(f"{line[name]:.5g}")] for line in lines if line.get(name) is not None]


def _train(document: recipe.Recipe, folder: Path) -> Any:
    from rlm_plugins.run.train import train

    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        return train(document, Registry(document.load, block=document.block), folder)


def sampled(job: Job, folder: Path) -> Record:
    """Return set → number of right completions of each held-out prompt, of the `k` that are sampled from a result."""
    from rlm_plugins.cli.run_result import finished_stage
    from rlm_plugins.evaluation.sampled import evaluate_sampled
    from rlm_plugins.recipe.compose import compose

    if not job.experiment.k:
        return {}
    second = yaml_strict.read(job.experiment.recipe).data["stages"][1]
    evaluation = {"max_new_tokens": second["trainer"]["max_completion_length"], **second["evaluation"]}
    document = recipe.load(folder / "recipe.yaml", [f"stages.0.evaluation={json.dumps(evaluation)}"])
    registry = Registry(document.load, block=document.block)
    stage = finished_stage(folder, compose(document, registry, held_out_only=True), None)
    # an arm may have a lower limit of the length: all are sampled alike
    settings = {name: value for name, value in stage.settings.items() if name != "max_completion_length"}
    model, tokenizer = stage.source.load(), stage.source.tokenizer()
    counts = {}
    for name, environment_spec in stage.suite.items():
        of_set = replace(stage, environment_spec=environment_spec, settings=settings)
        report = evaluate_sampled(of_set, list(environment_spec.test), model, tokenizer, job.experiment.k)
        assert report is not None
        counts[name] = [round(sum(scores)) for scores in report.scores.scores]
    return counts


def read(experiment: Experiment, out: Path) -> list[Record]:
    """Return the existing records, without an incomplete last line of a killed process."""
    file = out / "foundations" / f"{experiment.name}.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> None:
    """Measure what has no record with these settings, then write picture and page."""
    import torch
    from page import write

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=experiment.title)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--arms", nargs="+", help="names of arms (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for both stages")
    parser.add_argument("--report", action="store_true", help="only write picture and page")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    file = out / "foundations" / f"{experiment.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    jobs = [Job(experiment, arm, seed, out, tuple(options.set)) for seed in options.seeds for arm in experiment.arms]
    records = {(record["arm"], record["seed"]): record for record in read(experiment, out)}
    for job in jobs:
        known = records.get((job.arm.name, job.seed), {})
        if options.report or known.get("key") == job.key or (options.arms and job.arm.name not in options.arms):
            continue
        records[job.arm.name, job.seed] = record = measure(job)
        with file.open("a") as handle:
            handle.write(json.dumps(record) + "\n")
        print(job.arm.name, job.seed, *(f"{column.value(record):.3g}" for column in experiment.columns), flush=True)
    order = [arm.name for arm in experiment.arms]
    kept = [record for key, record in sorted(records.items(), key=lambda item: item[0][1]) if key[0] in order]
    kept.sort(key=lambda record: order.index(record["arm"]))
    file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    experiment.derive(kept)
    write(experiment, kept, out)
