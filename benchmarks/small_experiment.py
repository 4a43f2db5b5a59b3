"""Experiments on small policies: arms, the gate that every page must pass, tables and pictures."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from foundations.page import T95, interval, with_block

FIRST_SEED = 100
"""The reported seeds begin here; sizes and rates were chosen with seeds below."""
SATURATED = 0.98


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
    """

    title: str
    arms: Sequence[Arm]
    measures: dict[str, str]
    shown: str
    sign: int
    decided: Sequence[str]
    task: str = ""


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
        if not 0.2 <= begin <= 0.8:
            failed.append(f"{experiment.task} of seed {seed} starts at {begin:.3f}, not between 0.2 and 0.8")
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
    """Return the table of an experiment as Markdown."""
    seeds = len(next(iter(curves.values())))
    control = [run[experiment.shown][-1] for run in curves[experiment.arms[0].label]]
    head = [*experiment.measures.values(), f"less the control: {experiment.measures[experiment.shown]}"]
    head += ["tokens, thousands"] if experiment.task else []
    lines = [f"| | {' | '.join(head)} |", "|---|" + "--:|" * len(head)]
    for arm in experiment.arms:
        runs = curves[arm.label]
        cells = [cell([run[name][-1] for run in runs]) for name in experiment.measures]
        differences = [run[experiment.shown][-1] - other for run, other in zip(runs, control, strict=True)]
        cells.append(cell(differences) if any(differences) else "0")
        cells += [f"{fmean(run['tokens'][-1] for run in runs) / 1000:.1f}"] if experiment.task else []
        lines.append(f"| {arm.label} | {' | '.join(cells)} |")
    first = next(iter(curves.values()))[0]
    starts = " · ".join(f"{name} {first[key][0]:.2f}" for key, name in experiment.measures.items())
    return "\n".join([*lines, "", f"Start: {starts}. {seeds} seeds, {seconds:.0f} s of CPU time in all."])


def draw(found: dict[str, tuple[Experiment, Curves]], file: Path) -> None:
    """Write a panel per experiment: the mean over seeds of the deciding measure, and a line per seed."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(3.1 * len(found), 3.2))
    for panel, (experiment, curves) in zip(panels, found.values(), strict=True):
        for number, (label, runs) in enumerate(curves.items()):
            lines = [run[experiment.shown] for run in runs]
            for line in lines:
                panel.plot(line, color=f"C{number}", alpha=0.15, linewidth=0.7)
            panel.plot([fmean(values) for values in zip(*lines, strict=True)], color=f"C{number}", label=label)
        panel.set_title(experiment.title, fontsize=9)
        panel.set_ylabel(experiment.measures[experiment.shown], fontsize=8)
        panel.set_xlabel("step", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(fontsize=6.5, frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=80)


def main(
    experiments: Mapping[str, Callable[[], Experiment]],
    page: Path,
    picture: Path | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run experiments; write their tables and picture if all of them are run on ten seeds and pass the gate."""
    parser = argparse.ArgumentParser(description=f"Run the experiments of {page.name}.")
    parser.add_argument("--seeds", type=int, default=10, choices=sorted(T95))
    parser.add_argument("--only", choices=sorted(experiments))
    given = parser.parse_args(arguments)
    found, failed, tables = {}, [], {}
    for name in [given.only] if given.only else experiments:
        experiment, begin = experiments[name](), time.process_time()
        curves = {arm.label: [arm.run(FIRST_SEED + seed) for seed in range(given.seeds)] for arm in experiment.arms}
        tables[name] = table(experiment, curves, time.process_time() - begin)
        found[name] = (experiment, curves)
        failed += gate(experiment, curves)
        print(f"{experiment.title}\n{tables[name]}\n", flush=True)
    for line in failed:
        print(f"gate: {line}", file=sys.stderr)
    if not failed and not given.only and given.seeds == max(T95):
        text = page.read_text(encoding="utf-8")
        for name, content in tables.items():
            text = with_block(text, name, content)
        page.write_text(text, encoding="utf-8")
        if picture:
            draw(found, picture)
    return int(bool(failed))
