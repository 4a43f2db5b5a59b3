"""Table and picture of an experiment, and its block of the page ``benchmarks/results/foundations.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiment import Column, Experiment, Record

ORDER = (
    "discovery",
    "rl_and_sft",
    "model_prior",
    "tricks",
    "process_and_outcome",
    "discount",
    "collapse",
)
"""The experiments, in the order of the page."""
T95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 10: 2.262}
"""Student's t for a 95 % interval of the mean of so many numbers."""


def write(experiment: Experiment, records: Sequence[Record], out: Path) -> None:
    """Write the picture of an experiment, and its block of the page if that is in the folder.

    Args:
        experiment: What was measured.
        records: Its records, in the order of its arms.
        out: Folder of the results.
    """
    draw(experiment, records, out / "foundations" / f"{experiment.name}.png")
    text, page = block(experiment, records), out / "foundations.md"
    if page.exists():
        page.write_text(with_block(page.read_text(encoding="utf-8"), experiment.name, text), encoding="utf-8")
    print(text)


def with_block(page_text: str, name: str, text: str) -> str:
    """Return a page with `text` between the comments ``<!-- NAME -->`` and ``<!-- /NAME -->``, if it has them.

    >>> with_block("<!-- a -->old<!-- /a --> rest", "a", "new")
    '<!-- a -->\\n\\nnew\\n\\n<!-- /a --> rest'
    """
    before, start, rest = page_text.partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{start}\n\n{text}\n\n{end}{after}" if end else page_text


def block(experiment: Experiment, records: Sequence[Record]) -> str:
    """Return table, picture and command of an experiment as Markdown."""
    name = experiment.name
    runs = [record["seconds"] for record in records if "seconds" in record]
    starts = [record["start_seconds"] for record in records if record["start_seconds"]]
    cost = f"{fmean(runs):.0f} s of CPU time per run, {fmean(starts):.0f} s per start" if runs and starts else "no run"
    recipe, arms = f"[`{name}.yaml`](../foundations/{name}.yaml)", f"[`{name}.py`](../foundations/{name}.py)"
    lines = f"[`{name}.jsonl`](foundations/{name}.jsonl)"
    command = f"`python benchmarks/foundations/{name}.py`: {cost}. Recipe {recipe}, arms {arms}, every run {lines}."
    return "\n\n".join([table(experiment, records), f"![{experiment.title}](foundations/{name}.png)", command])


def table(experiment: Experiment, records: Sequence[Record]) -> str:
    """Return a line per arm: mean and interval of each column, and the difference from the first arm."""
    columns, first = experiment.columns, experiment.arms[0].name
    titles = ["arm", *(column.title for column in columns), f"{columns[0].title}, beyond `{first}`"]
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---|' * (len(titles) - 1)}"]
    for arm in dict.fromkeys(record["arm"] for record in records):
        cells = [cell(column, [record for record in records if record["arm"] == arm]) for column in columns]
        beyond = "" if arm == first else difference(columns[0], records, arm, first)
        lines.append(f"| `{arm}` | {' | '.join([*cells, beyond])} |")
    return "\n".join(lines)


def cell(column: Column, records: Sequence[Record]) -> str:
    """Return the mean over seeds with its interval as text, or a dash."""
    values = [value for value in map(column.value, records) if not math.isnan(value)]
    if not values:
        return "–"
    low, high = interval(values)
    if column.share:
        low, high = max(low, 0.0), min(high, 1.0)
    return f"{_number(fmean(values), column)} [{_number(low, column)}, {_number(high, column)}]"


def difference(column: Column, records: Sequence[Record], arm: str, first: str) -> str:
    """Return the mean paired difference between two arms over their seeds, with its interval, as text."""
    of = {(record["arm"], record["seed"]): column.value(record) for record in records}
    seeds = [seed for name, seed in of if name == arm and (first, seed) in of]
    values = [of[arm, seed] - of[first, seed] for seed in seeds]
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "–"
    low, high = interval(values)
    return f"{_number(fmean(values), column, '+')} [{_number(low, column, '+')}, {_number(high, column, '+')}]"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t; infinite for one number.

    >>> [round(x, 2) for x in interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    if len(values) < 2:
        return -math.inf, math.inf
    error = T95[len(values)] * stdev(values) / math.sqrt(len(values))
    return fmean(values) - error, fmean(values) + error


def _number(value: float, column: Column, sign: str = "") -> str:
    if math.isinf(value):
        return "?"
    return f"{100 * value:{sign}.1f}" if column.share else f"{value:{sign}.3g}"


def draw(experiment: Experiment, records: Sequence[Record], file: Path) -> None:
    """Draw the picture of an experiment, if matplotlib is installed (extra ``plot``)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    experiment.draw(figure, records)
    figure.savefig(file, dpi=110)


def mean_curves(axes: object, records: Sequence[Record], points: str, name: str) -> None:
    """Draw a curve per arm: the mean over its seeds, with a band from the lowest to the highest.

    Args:
        axes: Of matplotlib.
        records: The records.
        points: ``held_out`` or ``logged``.
        name: Name of the metric.
    """
    for arm in dict.fromkeys(record["arm"] for record in records):
        curves = [dict(map(tuple, r[points][name])) for r in records if r["arm"] == arm and r.get(points, {}).get(name)]
        if not curves:
            continue
        steps = [step for step in curves[0] if all(step in curve for curve in curves)]
        values = [[curve[step] for curve in curves] for step in steps]
        axes.plot(steps, [fmean(row) for row in values], label=arm)  # type: ignore[attr-defined]
        axes.fill_between(steps, [min(row) for row in values], [max(row) for row in values], alpha=0.12)  # type: ignore[attr-defined]
    axes.grid(alpha=0.3)  # type: ignore[attr-defined]


def last(record: Record, name: str, points: str = "held_out") -> float:
    """Return the last value of a curve; NaN without one."""
    curve = record.get(points, {}).get(name)
    return curve[-1][1] if curve else math.nan
