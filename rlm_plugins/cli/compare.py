"""``rlm compare``: the scores of runs, and the settings in which they differ."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import recorded
from rlm_plugins.cli.why import why
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
    different = [address for address in addresses if _differs(settings, address)]
    runs = []
    for folder, values in zip(folders, settings, strict=True):
        run_settings = {address: values.get(address) for address in different}
        runs.append({"run": str(folder), "settings": run_settings, **_score(folder)})
    return {"runs": runs, "groups": _groups(runs)}


def _differs(settings: Sequence[Mapping[str, Any]], address: str) -> bool:
    return len({json.dumps(values.get(address)) for values in settings}) > 1


def render(comparison: Entry) -> str:
    """Return a comparison as text: a line per run, then a line per group of several seeds."""
    runs, groups = comparison["runs"], comparison["groups"]
    lines: list[Sequence[str]] = [("run", "before", "after", "95 % interval", "differs in", "findings")]
    for run in runs:
        interval = "" if run["low"] is None else f"[{run['low']:.3f}, {run['high']:.3f}]"
        findings = ", ".join(run["findings"])
        lines.append(
            (
                run["run"],
                _number(run["before"]),
                _number(run["after"]),
                interval,
                _settings_text(run["settings"]),
                findings,
            )
        )
    text = columns(lines, indent="")
    if any(group["runs"] > 1 for group in groups):
        means: list[Sequence[str]] = [("settings", "seeds", "mean", "least", "largest")]
        for group in groups:
            scores = [_number(group[name]) for name in ("mean", "least", "largest")]
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
    members: dict[str, list[Entry]] = {}
    for run in runs:
        members.setdefault(json.dumps(_without_seeds(run["settings"])), []).append(run)
    groups = []
    for key, group in members.items():
        scores = [run["after"] for run in group if run["after"] is not None]
        mean = statistics.fmean(scores) if scores else None
        extremes = {"least": min(scores, default=None), "largest": max(scores, default=None)}
        groups.append({"settings": json.loads(key), "runs": len(group), "mean": mean, **extremes})
    return groups


def _without_seeds(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {address: value for address, value in settings.items() if address.rpartition(".")[2] != SEED}


def _settings_text(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{address}={plain(value)}" for address, value in settings.items())


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
