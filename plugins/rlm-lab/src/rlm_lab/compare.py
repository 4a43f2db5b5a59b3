"""``rlm compare``: the scores of runs, and the settings in which they differ."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_lab.why import why
from rlm_plugins.cli.recipe_argument import recorded
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.paths import leaves
from rlm_plugins.report.text_layout import columns, plain

Entry = dict[str, Any]
UNCOMPARED = ("name", "plugins.")
"""Keys of a resolved recipe that do not change a result."""
SEED = "seed"


def compare(folders: Sequence[Path]) -> Entry:
    """Compare runs by their held-out scores.

    Args:
        folders: The folders of the runs, at least one.

    Returns:
        ``runs`` (run, settings, metric, before, after, low, high, rows, seconds, findings) and ``groups`` (settings,
        runs, mean, least, largest): runs that differ in nothing but seeds form a group. ``settings`` holds what
        differs between the runs, by address.

    Raises:
        RlmError: A folder is not that of a run.
    """
    settings = [_settings(folder) for folder in folders]
    addresses = dict.fromkeys(address for values in settings for address in values)
    different = [a for a in addresses if len({json.dumps(values.get(a)) for values in settings}) > 1]
    runs = []
    for folder, values in zip(folders, settings, strict=True):
        run_settings = {address: values.get(address) for address in different}
        runs.append({"run": str(folder), "settings": run_settings, **_score(folder)})
    return {"runs": runs, "groups": _groups(runs)}


def render(comparison: Entry) -> str:
    """Return a comparison as text: a line per run, then a line per group of several seeds."""
    lines: list[Sequence[str]] = [("run", "before", "after", "95 % interval", "differs in", "findings")]
    for run in comparison["runs"]:
        interval = "" if run["low"] is None else f"[{run['low']:.3f}, {run['high']:.3f}]"
        cells = _settings_text(run["settings"]), ", ".join(run["findings"])
        lines.append((run["run"], number(run["before"]), number(run["after"]), interval, *cells))
    text = columns(lines, indent="")
    if any(group["runs"] > 1 for group in comparison["groups"]):
        means: list[Sequence[str]] = [("settings", "seeds", "mean", "least", "largest")]
        for group in comparison["groups"]:
            scores = [number(group[name]) for name in ("mean", "least", "largest")]
            means.append((_settings_text(group["settings"]) or "all", str(group["runs"]), *scores))
        text += "\n\n" + columns(means, indent="")
    return text


def _settings(folder: Path) -> dict[str, Any]:
    """Return address → value of every setting of the resolved recipe of a run."""
    document = recorded(folder, "rlm compare runs/A runs/B")
    settings = {".".join(map(str, path)): value for path, value in leaves(document)}
    return {address: value for address, value in settings.items() if not address.startswith(UNCOMPARED)}


def _score(folder: Path) -> Entry:
    """Return the scores of a run; null where it has none yet."""
    path = folder / "summary.json"
    try:
        summary: Entry = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        problem = f"expected the summary of a run, found no JSON: {error}"
        raise RlmError(problem, where=str(path), hint=f"remove it: `rlm train {folder} --resume` writes it") from None
    low, high = summary.get("interval") or (None, None)
    findings = [finding["name"] for stage in why(folder) for finding in stage["findings"] if finding["severity"] > 1]
    scores = {name: summary.get(name) for name in ("metric", "before", "after", "seconds")}
    return {**scores, "low": low, "high": high, "rows": summary.get("held_out_rows"), "findings": findings}


def _groups(runs: Sequence[Entry]) -> list[Entry]:
    """Return the runs by their settings without seeds, in the order of the first of each."""
    members: dict[str, list[float | None]] = {}
    for run in runs:
        settings = {a: value for a, value in run["settings"].items() if a.rpartition(".")[2] != SEED}
        members.setdefault(json.dumps(settings), []).append(run["after"])
    groups = []
    for key, results in members.items():
        scores = [score for score in results if score is not None]
        mean = statistics.fmean(scores) if scores else None
        extremes = {"least": min(scores, default=None), "largest": max(scores, default=None)}
        groups.append({"settings": json.loads(key), "runs": len(results), "mean": mean, **extremes})
    return groups


def _settings_text(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{address}={plain(value)}" for address, value in settings.items())


def number(value: float | None) -> str:
    """Return a score as text.

    >>> number(0.5), number(None)
    ('0.500', '–')
    """
    return "–" if value is None else f"{value:.3f}"
