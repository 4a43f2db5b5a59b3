"""Result of a race: held-out scores, paired differences from the first algorithm, a table and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from rlm_lab.compare import number
from rlm_plugins.durable.files import JsonLines, whole
from rlm_plugins.evaluation.scores import differences, paired_interval
from rlm_plugins.report.text_layout import columns
from rlm_plugins.run.folder import EVALUATIONS, SUMMARY

Entry = dict[str, Any]


def standings(runs: Mapping[str, Sequence[Path]]) -> list[Entry]:
    """Return one entry per algorithm, in the order of the race.

    Args:
        runs: Algorithm → its finished runs, one per seed, in the same order of seeds.

    Returns:
        - ``algorithm``, ``runs``, ``metric``
        - ``before``, ``after``: means over seeds; ``interval``: of the score of a single seed
        - ``difference`` from the first algorithm, with ``low`` and ``high``
        - ``reward``: mean of the last quarter of the steps; ``seconds``: mean duration of a step
    """
    scores = {name: [_last_scores(folder) for folder in folders] for name, folders in runs.items()}
    first = next(iter(scores.values()))
    entries = []
    for algorithm, folders in runs.items():
        summaries = [_summary(folder) for folder in folders]
        logs = [[record for record in _records(folder) if "grad_norm" in record] for folder in folders]
        last_quarters = chain.from_iterable(log[-(len(log) // 4 or 1) :] for log in logs)
        entry = {
            "algorithm": algorithm,
            "runs": [str(folder) for folder in folders],
            "metric": summaries[0].get("metric"),
            **{name: _mean(summary.get(name) for summary in summaries) for name in ("before", "after")},
            "interval": summaries[0].get("interval") if len(folders) == 1 else None,
            **_difference(first, scores[algorithm]),
            "reward": _mean(record.get("reward") for record in last_quarters),
            "seconds": _mean(record.get("step_time") for record in chain.from_iterable(logs)),
        }
        entries.append(entry)
    return entries


def _difference(first: Sequence[Sequence[float | None]], scores: Sequence[Sequence[float | None]]) -> Entry:
    """Return the mean paired difference over prompts, each prompt's averaged over the seeds, and its interval."""
    if first is scores or not all(first) or not all(scores):
        return {"difference": None, "low": None, "high": None}
    pairs = [differences(a, b) for a, b in zip(first, scores, strict=True)]
    by_seed, largest = zip(*pairs, strict=True)
    prompts = list(map(fmean, zip(*by_seed, strict=False)))
    low, high = paired_interval(prompts, max(largest))
    return {"difference": _mean(prompts), "low": low, "high": high}


def _last_scores(folder: Path) -> list[float | None]:
    """Return the score of each held-out prompt after training; empty without an evaluation."""
    records = JsonLines(folder / EVALUATIONS).records()
    return list(records[-1]["scores"]) if records else []


def _summary(folder: Path) -> Entry:
    summary: Entry = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary


def _records(folder: Path) -> list[Entry]:
    return JsonLines(folder / "metrics.jsonl").records()


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def render(entries: Sequence[Entry]) -> str:
    """Return the standings as a table."""
    change = f"difference from {entries[0]['algorithm']}"
    lines: list[Sequence[str]] = [("algorithm", "before", "after", "95 % interval", change, "reward", "s/step")]
    for entry in entries:
        interval = "" if entry["interval"] is None else "[{:.3f}, {:.3f}]".format(*entry["interval"])
        change = "–"
        if entry["difference"] is not None:
            change = f"{entry['difference']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]"
        before, after, reward, seconds = (number(entry[name]) for name in ("before", "after", "reward", "seconds"))
        lines.append((entry["algorithm"], before, after, interval, change, reward, seconds))
    return columns(lines, indent="")


def picture(runs: Mapping[str, Sequence[Path]], file: Path) -> bool:
    """Draw the held-out score with its interval and the reward over the steps, a color per algorithm.

    Returns:
        False if matplotlib is not installed (extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(11, 4), layout="constrained")
    held_out, reward = figure.subplots(1, 2)
    for index, (algorithm, folders) in enumerate(runs.items()):
        for seed, folder in enumerate(folders):
            style: Entry = {"label": algorithm if seed == 0 else None, "color": f"C{index}"}
            records, metric = _records(folder), _summary(folder).get("metric")
            scored = [r for r in records if "held_out/rows" in r and "held_out/kept_step" not in r]
            if scored and metric:
                keys = "step", f"held_out/{metric}", "held_out/low", "held_out/high"
                steps, scores, lows, highs = ([record[key] for record in scored] for key in keys)
                held_out.fill_between(steps, lows, highs, alpha=0.1, color=style["color"])
                held_out.plot(steps, scores, marker="o", **style)
                held_out.set(title=f"held-out {metric}")
            trained = [(r["step"], r["reward"]) for r in records if r.get("reward") is not None]
            reward.plot(*zip(*trained, strict=True), **style)
    reward.set(title="reward of training samples")
    for axes in (held_out, reward):
        axes.set(xlabel="step")
        axes.grid(alpha=0.3)
    reward.legend()
    with whole(file) as staged:
        figure.savefig(staged, dpi=120)
    return True
