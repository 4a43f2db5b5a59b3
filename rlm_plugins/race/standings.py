"""Result of a race: held-out scores, paired differences from the first algorithm, a table and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from rlm_plugins.durable.files import file_errors
from rlm_plugins.durable.json_lines import JsonLines
from rlm_plugins.evaluation.early_stop import differences
from rlm_plugins.evaluation.estimators import paired_interval
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
    entries: list[Entry] = []
    first: list[list[float | None]] | None = None
    for algorithm, folders in runs.items():
        summaries = [json.loads((folder / SUMMARY).read_text(encoding="utf-8")) for folder in folders]
        scores = [_last_scores(folder) for folder in folders]
        first = scores if first is None else first
        entries.append(
            {
                "algorithm": algorithm,
                "runs": [str(folder) for folder in folders],
                "metric": summaries[0].get("metric"),
                "before": _mean([summary.get("before") for summary in summaries]),
                "after": _mean([summary.get("after") for summary in summaries]),
                "interval": summaries[0].get("interval") if len(folders) == 1 else None,
                **_difference(first, scores),
                **_training([_records(folder) for folder in folders]),
            }
        )
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


def _records(folder: Path) -> list[Entry]:
    return [record for record in JsonLines(folder / "metrics.jsonl").records() if "grad_norm" in record]


def _training(logs: Sequence[Sequence[Entry]]) -> Entry:
    last_quarters = chain.from_iterable(log[-(len(log) // 4 or 1) :] for log in logs)
    rewards = [record.get("reward") for record in last_quarters]
    seconds = [record.get("step_time") for record in chain.from_iterable(logs)]
    return {"reward": _mean(rewards), "seconds": _mean(seconds)}


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def _columns(records: Sequence[Entry], *keys: str) -> list[list[Any]]:
    return [list(map(itemgetter(key), records)) for key in keys]


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
    for number, (algorithm, folders) in enumerate(runs.items()):
        for seed, folder in enumerate(folders):
            label, color = algorithm if seed == 0 else None, f"C{number}"
            records = JsonLines(folder / "metrics.jsonl").records()
            scored = [r for r in records if "held_out/rows" in r and "held_out/kept_step" not in r]
            metric = json.loads((folder / SUMMARY).read_text(encoding="utf-8")).get("metric")
            if scored and metric:
                keys = "step", f"held_out/{metric}", "held_out/low", "held_out/high"
                steps, scores, lows, highs = _columns(scored, *keys)
                held_out.fill_between(steps, lows, highs, alpha=0.1, color=color)
                held_out.plot(steps, scores, marker="o", color=color, label=label)
                held_out.set(title=f"held-out {metric}")
            trained = [r for r in records if r.get("reward") is not None]
            reward.plot(*_columns(trained, "step", "reward"), color=color, label=label)
    reward.set(title="reward of training samples")
    for axes in (held_out, reward):
        axes.set(xlabel="step")
        axes.grid(alpha=0.3)
    reward.legend()
    with file_errors(file):
        figure.savefig(file, dpi=120)
    return True
