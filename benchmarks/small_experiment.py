"""Experiments on small policies: arms, the gate that every page must pass, tables and pictures."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

FIRST_SEED = 100
"""The reported seeds begin here; sizes and rates were chosen with seeds below."""
SATURATED = 0.98
T95 = {2: 12.71, 3: 4.303, 5: 2.776, 10: 2.262}
"""Student's t for a 95 % interval of the mean of so many numbers."""


@dataclass(frozen=True)
class Arm:
    """One training of an experiment: its label, and seed → curves of its measures."""

    label: str
    run: Callable[[int], dict[str, list[float]]]


@dataclass(frozen=True)
class Experiment:
    """Arms that differ in one symbol.

    Args:
        title: Of its table and panel.
        arms: The first one is the control.
        measures: Name of a measure → its description.
        shown: The measure whose difference to the control decides.
        sign: Expected sign of that difference, on every seed.
        decided: Labels of the arms that the gate requires to have that sign; none where the outcome is open.
        task: A share that the control must raise on every seed, from a start between 20 and 80 %.
        begin: Other bounds of that start, for a claim about another one.
        drawn: The measure in the picture; by default `shown`.
        by_tokens: The picture has generated tokens as its axis, in place of steps.
    """

    title: str
    arms: Sequence[Arm]
    measures: dict[str, str]
    shown: str
    sign: int
    decided: Sequence[str]
    task: str = ""
    begin: tuple[float, float] = (0.2, 0.8)
    drawn: str = ""
    by_tokens: bool = False


def areas(curves: dict[str, list[float]], name: str) -> dict[str, list[float]]:
    """Return the curves with `area`, the mean of a measure over the steps so far."""
    values = curves[name]
    return {**curves, "area": [fmean(values[: step + 1]) for step in range(len(values))]}


def on_grid(curves: dict[str, list[float]], budget: int, points: int) -> dict[str, list[float]]:
    """Return curves at equal distances of generated tokens: at each the last value before it."""
    grid = [budget * n / points for n in range(points + 1)]
    index = [sum(tokens <= at for tokens in curves["tokens"]) - 1 for at in grid]
    return {**{name: [values[n] for n in index] for name, values in curves.items()}, "tokens": grid}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t.

    >>> [round(x, 2) for x in interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    error = T95[len(values)] * stdev(values) / math.sqrt(len(values))
    return fmean(values) - error, fmean(values) + error


def with_block(page_text: str, name: str, text: str) -> str:
    """Return a page with `text` between the comments ``<!-- NAME -->`` and ``<!-- /NAME -->``, if it has them.

    >>> with_block("<!-- a -->old<!-- /a --> rest", "a", "new")
    '<!-- a -->\\n\\nnew\\n\\n<!-- /a --> rest'
    """
    before, start, rest = page_text.partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{start}\n\n{text}\n\n{end}{after}" if end else page_text


def cell(values: Sequence[float]) -> str:
    """Return mean and half-width of the 95 % interval over seeds."""
    return f"{fmean(values):.2f} ± {interval(values)[1] - fmean(values):.2f}"


Curves = dict[str, list[dict[str, list[float]]]]


def gate(experiment: Experiment, curves: Curves) -> list[str]:
    """Return what forbids to write the page: a control that does not learn, or an effect with another sign.

    With a `task`, its start must lie between 20 and 80 %, and the control must gain on every seed. No arm may be
    saturated: with a mean over its steps of 98 % or more no difference can show.
    """
    failed = []
    control = curves[experiment.arms[0].label]
    for seed, run in enumerate(control if experiment.task else [], FIRST_SEED):
        begin, end = run[experiment.task][0], run[experiment.task][-1]
        low, high = experiment.begin
        if not low <= begin <= high:
            failed.append(f"{experiment.task} of seed {seed} starts at {begin:.3f}, not between {low} and {high}")
        if end <= begin:
            failed.append(f"the control of seed {seed} goes from {begin:.3f} to {end:.3f} in {experiment.task}")
    for label, runs in curves.items() if experiment.task else ():
        if fmean(fmean(run[experiment.task]) for run in runs) >= SATURATED:
            failed.append(f"{label}: saturated in {experiment.task}")
    for label in experiment.decided:
        for seed, (run, other) in enumerate(zip(curves[label], control, strict=True), FIRST_SEED):
            value, of_control = run[experiment.shown][-1], other[experiment.shown][-1]
            if (value - of_control) * experiment.sign <= 0:
                failed.append(f"{label}: seed {seed} has {value:.3f}, the control {of_control:.3f}")
    return failed


def table(experiment: Experiment, curves: Curves, seconds: float) -> str:
    """Return the table of an experiment as Markdown; an arm whose curves are those of an earlier one names it."""
    seeds = len(next(iter(curves.values())))
    control = [run[experiment.shown][-1] for run in curves[experiment.arms[0].label]]
    head = [*experiment.measures.values(), f"less the control: {experiment.measures[experiment.shown]}"]
    head += ["tokens, thousands"] if experiment.task else []
    lines = [f"| | {' | '.join(head)} |", "|---|" + "--:|" * len(head)]
    for arm in experiment.arms:
        runs = curves[arm.label]
        twin = next((label for label in curves if curves[label] == runs), arm.label)
        label = arm.label if twin == arm.label else f"{arm.label} = {twin}"
        cells = [cell([run[name][-1] for run in runs]) for name in experiment.measures]
        differences = [run[experiment.shown][-1] - other for run, other in zip(runs, control, strict=True)]
        cells.append(cell(differences) if any(differences) else "0")
        cells += [f"{fmean(run['tokens'][-1] for run in runs) / 1000:.1f}"] if experiment.task else []
        lines.append(f"| {label} | {' | '.join(cells)} |")
    first = next(iter(curves.values()))[0]
    starts = " · ".join(f"{name} {first[key][0]:.2f}" for key, name in experiment.measures.items())
    return "\n".join([*lines, "", f"Start: {starts}. {seeds} seeds, {seconds:.0f} s of CPU time in all."])


def draw(measured: dict[str, tuple[Experiment, Curves]], file: Path) -> None:
    """Write a panel per experiment: the mean over seeds of the deciding measure, and a line per seed."""
    from matplotlib import pyplot as plt

    columns = min(len(measured), 4)
    rows = -(-len(measured) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(3.1 * columns, 3.2 * rows), squeeze=False)
    for panel in panels.flat[len(measured) :]:
        panel.axis("off")
    for panel, (experiment, curves) in zip(panels.flat, measured.values(), strict=False):
        plot(panel, experiment, curves)
        panel.set_title(experiment.title, fontsize=9)
        panel.set_ylabel(experiment.measures[experiment.drawn or experiment.shown], fontsize=8)
        panel.set_xlabel("thousand tokens" if experiment.by_tokens else "step", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(fontsize=6.5, frameon=False)
    figure.tight_layout()
    save(figure, file)


def plot(panel: Any, experiment: Experiment, curves: Curves) -> None:
    """Draw the mean of each arm, and a line per seed."""
    for number, (label, runs) in enumerate(curves.items()):
        lines = [run[experiment.drawn or experiment.shown] for run in runs]
        steps = [n / 1000 for n in runs[0]["tokens"]] if experiment.by_tokens else range(len(lines[0]))
        for line in lines:
            panel.plot(steps, line, color=f"C{number % 10}", alpha=0.15, linewidth=0.7)
        mean = [fmean(values) for values in zip(*lines, strict=True)]
        panel.plot(steps, mean, color=f"C{number % 10}", linestyle="-" if number < 10 else "--", label=label)


def save(figure: Any, file: Path) -> None:
    """Write a picture with 128 colors, which is a third of the bytes."""
    from PIL import Image

    figure.savefig(file, dpi=80)
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


def records(measured: dict[str, tuple[Experiment, Curves]]) -> str:
    """Return a line of JSON per arm: the mean over seeds of every measure, and the half-width of its last interval."""
    lines = []
    for name, (_, curves) in measured.items():
        for label, runs in curves.items():
            means = {
                key: [round(fmean(x), 4) for x in zip(*(run[key] for run in runs), strict=True)] for key in runs[0]
            }
            last = {key: [run[key][-1] for run in runs] for key in runs[0]}
            half = {key: round(interval(values)[1] - fmean(values), 4) for key, values in last.items()}
            lines.append(json.dumps({"experiment": name, "arm": label, "mean": means, "half": half}) + "\n")
    return "".join(lines)


Experiments = Mapping[str, Callable[[], Experiment]]


def one_run(experiments: Experiments, name: str, arm: int, seed: int) -> tuple[dict[str, list[float]], float]:
    """Return the curves of one arm and seed, and its seconds of CPU time."""
    begin = time.process_time()
    curves = experiments[name]().arms[arm].run(seed)
    return curves, time.process_time() - begin


def measure(experiments: Experiments, name: str, seeds: int, jobs: int) -> tuple[Experiment, Curves, float]:
    """Return an experiment, its curves and its seconds of CPU time, from so many processes."""
    experiment = experiments[name]()
    tasks = [(name, arm, FIRST_SEED + seed) for arm in range(len(experiment.arms)) for seed in range(seeds)]
    run = partial(one_run, experiments)
    if jobs > 1:
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            results = list(pool.map(run, *zip(*tasks, strict=True)))
    else:
        results = [run(*task) for task in tasks]
    curves = {
        arm.label: [run for run, _ in results[number * seeds : (number + 1) * seeds]]
        for number, arm in enumerate(experiment.arms)
    }
    return experiment, curves, sum(seconds for _, seconds in results)


def main(
    experiments: Experiments,
    page: Path,
    arguments: Sequence[str] | None = None,
    *,
    picture: Path | None = None,
    keep: Path | None = None,
) -> int:
    """Run experiments; write the table of each that is run on ten seeds and passes the gate.

    Args:
        experiments: Name of a block of the page → its experiment.
        page: The page with the blocks.
        arguments: Of the command line.
        picture: File for a panel of each experiment, written if all of them are run and pass.
        keep: Folder for the picture and the curves of each experiment.
    """
    parser = argparse.ArgumentParser(description=f"Run the experiments of {page.name}.")
    parser.add_argument("--seeds", type=int, default=10, choices=sorted(T95))
    parser.add_argument("--only", choices=sorted(experiments))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    measured, failed = {}, []
    for name in [given.only] if given.only else experiments:
        experiment, curves, seconds = measure(experiments, name, given.seeds, given.jobs)
        measured[name] = (experiment, curves)
        text, problems = table(experiment, curves, seconds), gate(experiment, curves)
        print(f"{experiment.title}\n{text}\n", flush=True)
        failed += [f"gate: {name}: {line}" for line in problems]
        if given.seeds == max(T95) and not problems:
            page.write_text(with_block(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")
            if keep:
                draw({name: measured[name]}, keep / f"{name}.png")
                (keep / f"{name}.jsonl").write_text(records({name: measured[name]}), encoding="utf-8")
    if picture and given.seeds == max(T95) and not failed and not given.only:
        draw(measured, picture)
    for line in failed:
        print(line, file=sys.stderr)
    return int(bool(failed))
