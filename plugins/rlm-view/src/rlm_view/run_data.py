"""The logs of a run as plain data for the page: curves, findings, samples, settings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_lab.why import why

from rlm_plugins.durable.files import JsonLines
from rlm_plugins.recipe.paths import leaves
from rlm_plugins.run.recipe_argument import recorded

Entry = dict[str, Any]
SAMPLES = 2000
"""Largest number of samples of a page; the latest are used."""
_NO_CURVE = ("stage", "step", "epoch", "total_flos")
_INTERVALS = {"low": "/low", "high": "/high"}


def run_data(folder: Path, log_line: Callable[[str], None]) -> Entry:
    """Return a run as plain data, without its capsules.

    Args:
        folder: Folder of a run, finished or running, with or without capsules.
        log_line: Called with one line about damaged lines, and one about samples that are left out.

    Raises:
        RlmError: The folder is not that of a run.
    """
    document = recorded(folder, "rlm view runs/NAME")
    records = JsonLines(folder / "metrics.jsonl", log_line).records()
    samples = JsonLines(folder / "samples.jsonl", log_line).records()
    if len(samples) > SAMPLES:
        log_line(f"{folder}: {len(samples) - SAMPLES} older samples are left out")
    settings = {".".join(map(str, path)): value for path, value in leaves(document)}
    given = {re.sub(r"\[(\d+)\]", r".\1", str(key)) for key in _json(folder / "manifest.json").get("given") or ()}
    return {
        "name": folder.resolve().name,
        "summary": _json(folder / "summary.json") or None,
        "settings": settings,
        "given": [key for key in settings if _is_given(key, given)],
        "stages": stages_of(records, _scores(document, records)),
        "findings": why(folder),
        "samples": [_sample(sample) for sample in samples[-SAMPLES:]],
    }


def stages_of(records: Sequence[Mapping[str, Any]], scores: Mapping[str, str]) -> list[Entry]:
    """Return the curves of each stage: metric → [[step, value, low, high], …]; the interval is null where unknown.

    Args:
        records: Lines of ``metrics.jsonl``.
        scores: Stage → metric to which the interval of the held-out score belongs.

    >>> stages_of([{"stage": "a", "step": 1, "held_out/x": 0.5, "held_out/low": 0.4, "held_out/high": 0.6}], {"a": "x"})
    [{'name': 'a', 'curves': {'held_out/x': [[1, 0.5, 0.4, 0.6]]}}]
    """
    stages: dict[str, dict[str, list[list[float | None]]]] = {}
    for record in records:
        step = record.get("step")
        if not isinstance(step, int | float) or isinstance(step, bool):
            continue
        curves = stages.setdefault(str(record.get("stage", "")), {})
        low, high = (_number(record.get(f"held_out{end}")) for end in _INTERVALS.values())
        for metric, value in record.items():
            number = _number(value)
            if metric in _NO_CURVE or number is None or (metric.startswith("held_out") and metric.endswith(_ENDS)):
                continue
            is_score = metric == f"held_out/{scores.get(str(record.get('stage')))}"
            interval = [low, high] if is_score else [None, None]
            curves.setdefault(metric, []).append([step, number, *interval])
    return [{"name": name, "curves": curves} for name, curves in stages.items()]


def _scores(document: Any, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return stage → `evaluation.metric` of the resolved recipe."""
    bodies = document.get("stages") or [document] if isinstance(document, dict) else []
    scores = {}
    for stage in dict.fromkeys(str(record.get("stage", "")) for record in records):
        number = int(stage[:2]) - 1 if stage[:2].isdigit() else 0
        body = bodies[number] if 0 <= number < len(bodies) else {}
        evaluation = body.get("evaluation") if isinstance(body, dict) else None
        if isinstance(evaluation, dict):
            scores[stage] = str(evaluation.get("metric"))
    return scores


_ENDS = (*_INTERVALS.values(), "/rows")


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(f"{value:.6g}") if is_number else None


def _sample(sample: Mapping[str, Any]) -> Entry:
    """Return a sample with the keys of the page; lines of older versions may lack some."""
    rewards = sample.get("rewards")
    rewards = rewards if isinstance(rewards, Mapping) else {}
    texts = {key: str(sample.get(key, "")) for key in ("stage", "prompt", "completion")}
    columns = sample.get("columns")
    numbers: Entry = {key: _number(sample.get(key)) for key in ("step", "reward", "advantage")}
    numbers["columns"] = dict(columns) if isinstance(columns, Mapping) else {}
    return {**texts, **numbers, "rewards": {str(name): _number(value) for name, value in rewards.items()}}


def _is_given(key: str, given: Collection[str]) -> bool:
    """Return True for a setting that the recipe sets, also at its top level or as the bare name of a part."""
    keys = (key, re.sub(r"^stages\.\d+\.", "", key))
    return any(name in given or name.removesuffix(".name") in given for name in keys)


def _json(path: Path) -> Entry:
    """Return the mapping of a JSON file; empty while there is none, or if it is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
