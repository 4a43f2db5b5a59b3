"""``rlm compare``: the scores of runs, and the settings in which they differ."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rlm_lab.why import why
from rlm_plugins.errors import RlmError
from rlm_plugins.report.text_layout import fitted, plain
from rlm_plugins.run.recipe_argument import recorded

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
        differs between the runs: address → value, where the value of a slot is the names of its parts.

    Raises:
        RlmError: A folder is not that of a run, or is named twice.
    """
    for number, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:number]]:
            raise RlmError("expected different runs, got this one twice", where=str(folder), hint="name each run once")
    settings = [_settings(folder) for folder in folders]
    different = _different(settings)
    runs = []
    for folder, values in zip(folders, settings, strict=True):
        run_settings = {address: values.get(address) for address in different}
        runs.append({"run": str(folder), "settings": run_settings, **_score(folder)})
    return {"runs": runs, "groups": _groups(runs)}


def render(comparison: Entry, width: int) -> str:
    """Return a comparison as text of at most `width` columns: each run, then each group of seeds."""
    lines: list[Sequence[str]] = [("run", "before", "after", "95 % interval", "differs in", "findings")]
    for run in comparison["runs"]:
        interval = "" if run["low"] is None else f"{run['low']:.3f}–{run['high']:.3f}"
        cells = _settings_text(run["settings"]), "\n".join(run["findings"])
        lines.append((run["run"], number(run["before"]), number(run["after"]), interval, *cells))
    text = _table(lines, width)
    if any(group["runs"] > 1 for group in comparison["groups"]):
        means: list[Sequence[str]] = [("settings", "seeds", "mean", "least", "largest")]
        for group in comparison["groups"]:
            scores = [number(group[name]) for name in ("mean", "least", "largest")]
            means.append((_settings_text(group["settings"]) or "all", str(group["runs"]), *scores))
        text += ["", *_table(means, width)]
    return "\n".join(text)


def _table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return aligned columns; where they are wider than `width`, a block of lines per row."""
    table = fitted(rows, width)
    if max(map(len, chain.from_iterable(map(str.splitlines, table)))) <= width:
        return table
    names, *cells = rows
    blocks = [[f"  {n}  {'; '.join(cell.splitlines())}" for n, cell in zip(names, row, strict=True)] for row in cells]
    lines = (line if line.strip() else "" for block in blocks for line in [block[0].strip(), *block[1:], ""])
    return [textwrap.fill(line, width, subsequent_indent="    ") for line in lines][:-1]


def _settings(folder: Path) -> dict[str, Any]:
    """Return address → value of every setting of the resolved recipe of a run; knobs have the name of their part."""
    document = recorded(folder, "rlm compare runs/A runs/B")
    settings = dict(_by_part(document, ""))
    return {address: value for address, value in settings.items() if not address.startswith(UNCOMPARED)}


def _by_part(value: Any, address: str) -> Iterator[tuple[str, Any]]:
    """Yield the values below an address, and for a part, or a list of parts, the names.

    >>> dict(_by_part({"rewards": [{"name": "format", "as": "tags", "weight": 1}]}, ""))
    {'rewards': 'tags', 'rewards.tags': 'format', 'rewards.tags.weight': 1}
    """
    if address == "stages":
        value = {str(number): {**stage, "name": None} for number, stage in enumerate(value)}
    elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        names = [str(entry.get("as") or entry.get("name")) for entry in value]
        yield address, ", ".join(names)
        value = dict(zip(names, value, strict=True))
    elif isinstance(value, dict) and value.get("name") and address:
        yield address, value["name"]
    if not isinstance(value, dict):
        yield address, value
        return
    for key, inner in value.items():
        if key not in ("name", "as") or not address:
            yield from _by_part(inner, f"{address}.{key}" if address else key)


def _different(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the addresses whose values differ, without the knobs of a part that not every run has."""
    addresses = dict.fromkeys(address for values in settings for address in values)
    different = [a for a in addresses if len({json.dumps(values.get(a)) for values in settings}) > 1]
    slots = tuple(f"{address}." for address in different)
    return [a for a in different if not a.startswith(slots) or all(a in values for values in settings)]


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
    return "\n".join(f"{address}={plain(value)}" for address, value in settings.items())


def number(value: float | None) -> str:
    """Return a score as text.

    >>> number(0.5), number(None)
    ('0.500', '–')
    """
    return "–" if value is None else f"{value:.3f}"
