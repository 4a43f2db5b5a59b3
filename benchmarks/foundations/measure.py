"""Measurement of the arms of an experiment, and its command line."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import HERE, START, Experiment, Job, Record

from rlm_plugins import recipe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.registry import Registry

RESULTS = HERE.parent / "results"
SEEDS = (0, 1, 2)


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
    from rlm_plugins.evaluation.held_out import evaluate_sampled
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.run.launch import finished_stage

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
