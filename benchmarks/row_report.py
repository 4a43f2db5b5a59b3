"""The page ``rows.md`` and its figure from the records of `rows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from row_settings import LEFT_OUT, NOTES, OWN, READING

Record = dict[str, Any]
ENOUGH = 0.9
"""Accuracy from which an algorithm counts as having learned the task."""


def report(records: Sequence[Record], folder: Path, known: Sequence[str] = ()) -> str:
    """Write ``rows.md`` and ``rows.png`` (if matplotlib is installed).

    Args:
        records: One per algorithm and seed, in the order of the table.
        folder: Folder of the files.
        known: Algorithms that can be measured.

    Returns:
        The text of ``rows.md``.
    """
    rows = by_row(records)
    text = (
        "\n\n".join(filter(None, [heading(records), READING, table(rows), unmeasured(rows, known), notes(rows)])) + "\n"
    )
    (folder / "rows.md").write_text(text, encoding="utf-8")
    draw(rows, folder / "rows.png")
    return text


def by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each algorithm."""
    rows: dict[str, list[Record]] = {}
    for record in records:
        rows.setdefault(record["row"], []).append(record)
    return rows


def heading(records: Sequence[Record]) -> str:
    """Return the heading: the measurement and its settings."""
    steps = sorted({r["stage"]["trainer"]["max_steps"] for r in records})
    seeds = sorted({r["seed"] for r in records})
    problems = sorted({r["held_out_rows"] for r in records})
    packages = sorted({f"{name} {r['packages'][name]}" for r in records for name in ("torch", "trl", "transformers")})
    return (
        "# Every algorithm on the quickstart's task\n\n"
        f"`python benchmarks/rows.py`: {_listed(steps)} steps from the same supervised start, seeds {_listed(seeds)}; "
        "model, LoRA, learning rate, batch, rewards and prompts are those of `recipes/lessons/01-addition.yaml`, "
        "except where the notes list another setting; every setting of every run is in `rows.jsonl`. "
        f"Accuracy: greedy answers to {_listed(problems)} held-out prompts. ≥ {ENOUGH:.0%}: the first evaluation "
        "with that mean over the seeds. Length (tokens) and entropy (nats per token): of samples from the result at "
        "temperature 1. Seconds: CPU time of the whole run on one thread, including evaluations. "
        f"With {', '.join(packages)}."
    )


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def table(rows: dict[str, list[Record]]) -> str:
    """Return a table with one line per algorithm, means over its seeds."""
    lines = ["| algorithm | accuracy | of each seed | ≥ 90 % at step | length | entropy | seconds |"]
    lines += ["|---|---|---|--:|--:|--:|--:|"]
    for row, runs in rows.items():
        mean = {name: fmean(run[name] for run in runs) for name in ("before", "after", "length", "entropy", "seconds")}
        each = " · ".join(f"{run['after']:.3f}" for run in runs)
        when = next((str(step) for step, score in mean_curve(runs) if score >= ENOUGH), "–")
        lines.append(
            f"| `{row}` | {mean['before']:.3f} → {mean['after']:.3f} | {each} | {when} | {mean['length']:.1f} "
            f"| {mean['entropy']:.3f} | {mean['seconds']:.0f} |"
        )
    return "\n".join(lines)


def mean_curve(runs: Sequence[Record]) -> list[tuple[int, float]]:
    """Return (step, mean held-out score over the runs)."""
    curves = [dict(run["curve"]) for run in runs]
    return [(step, fmean(curve[step] for curve in curves)) for step in curves[0] if all(step in c for c in curves)]


def unmeasured(rows: dict[str, list[Record]], known: Sequence[str]) -> str:
    """Return the sentence on algorithms without a result, or with fewer seeds than others; empty if there are none."""
    most = max(map(len, rows.values()), default=0)
    missing = [f"`{name}`" for name in known if name not in rows]
    partial = [f"`{name}`" for name, runs in rows.items() if len(runs) < most]
    lists = {"Not measured yet": missing, f"Measured with fewer than {most} seeds": partial}
    sentences = [f"{what}: {', '.join(names)}." for what, names in lists.items() if names]
    return " ".join([*sentences, "The command measures what is missing."]) if sentences else ""


def notes(rows: dict[str, list[Record]]) -> str:
    """Return the notes below the table."""
    lines = [f"- `{row}`: {NOTES[row]}" for row in rows if row in NOTES]
    own = [f"- `{row}` uses `{'`, `'.join(OWN[row].overrides)}`: {OWN[row].why}." for row in rows if row in OWN]
    out = [f"- `{row}` is excluded: {why}." for row, why in LEFT_OUT.items()]
    return "\n".join([*lines, *own, *out])


def draw(rows: dict[str, list[Record]], file: Path) -> bool:
    """Draw the learning curves as small multiples: a thin line per seed, a thick one for the mean.

    Returns:
        False if matplotlib is not installed (extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    columns = min(6, len(rows))
    lines = -(-len(rows) // columns)
    figure = Figure(figsize=(1.5 * columns + 0.6, 1.25 * lines + 0.6), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(rows) :]:
        axes.set_visible(False)
    for axes in grid.flat[max(0, len(rows) - columns) : len(rows)]:
        axes.tick_params(labelbottom=True)  # also above an empty cell
    for axes, (row, runs) in zip(grid.flat, rows.items(), strict=False):
        for run in runs:
            axes.plot(*zip(*run["curve"], strict=True), color="tab:blue", alpha=0.35, linewidth=0.8)
        axes.plot(*zip(*mean_curve(runs), strict=True), color="tab:blue", linewidth=1.8)
        axes.set_title(row, fontsize=9)
        axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("held-out accuracy", fontsize=9)
    figure.savefig(file, dpi=140)
    return True
