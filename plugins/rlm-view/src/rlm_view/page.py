"""The page: data, style and script in one HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_lab.why import why

from rlm_plugins.durable.files import JsonLines, whole
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.paths import leaves
from rlm_plugins.run.recipe_argument import recorded
from rlm_view.capsule import capsules_of

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


_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that could end a script element."""


def _capsules(run: Path, log_line: Callable[[str], None]) -> list[dict[str, Any]]:
    if not capsules_of(run):
        return []
    from rlm_view.capsule_data import capsules_data  # imports torch

    return capsules_data(run, log_line)


def page_of(data: Any) -> str:
    """Return the page of some data as HTML; whatever the data holds is text, never markup."""
    style, script = (_asset(name) for name in ("view.css", "view.js"))
    title = " and ".join(run["name"] for run in data["runs"])
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    parts = {"TITLE": escape(title), "POLICY": policy, "STYLE": style, "SCRIPT": script, "DATA": as_json(data)}
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def as_json(data: Any) -> str:
    """Return JSON in ASCII that no HTML parser takes for markup.

    >>> print(as_json("</script>"))
    "\\u003c/script\\u003e"
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    for character, code in _ESCAPED.items():
        text = text.replace(character, code)
    return text


def _asset(name: str) -> str:
    return (files("rlm_view") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"


HEIGHT = 800


class DisplayedPage:
    """A page that a notebook displays; the notebook stores a copy of it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __repr__(self) -> str:
        return f"DisplayedPage('{self.file}')"

    def _repr_html_(self) -> str:
        """Return a frame with the page, whose script cannot reach the notebook (`sandbox`)."""
        page = escape(self.file.read_text(encoding="utf-8"), quote=True)
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe title="rlm view" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


MOST_RUNS = 2


def view(runs: Sequence[Path], out: Path | None, log_line: Callable[[str], None]) -> Path:
    """Write the page of one run, or of two beside each other.

    Args:
        runs: Their folders.
        out: The HTML file; None: ``view.html`` in the folder of the first.
        log_line: Called with one line about each damage, and about what is left out.

    Raises:
        RlmError: A folder is not that of a run, there are more than two, or the file cannot be written.
    """
    if len(runs) > MOST_RUNS:
        hint = "`rlm compare` compares any number of runs"
        raise RlmError(f"expected one or two runs, got {len(runs)}", where="rlm view", hint=hint)
    target = runs[0] / "view.html" if out is None else out
    data = {"runs": [{**run_data(run, log_line), "capsules": _capsules(run, log_line)} for run in runs]}
    with whole(target) as staged:
        staged.write_text(page_of(data), encoding="utf-8")
    return target


def displayed(run: Path) -> DisplayedPage:
    """Write the page of a run, and return it for a notebook.

    Raises:
        RlmError: The folder is not that of a run, or the file cannot be written.
    """
    return DisplayedPage(view([run], None, print))
