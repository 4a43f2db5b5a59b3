"""Findings of the diagnosis on recorded runs and on settings, computed when the site is built."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from rlm_lab.quantities import StageSettings
from rlm_lab.rules import RULES, Finding, Rule, diagnose, foresee
from site_pages import ROOT
from site_text import code

DATA = ROOT / "tests" / "data"
HEALTHY = "healthy"
Records = list[dict[str, Any]]


@cache
def recorded() -> dict[str, tuple[Records, StageSettings]]:
    """Return the recorded runs of tests/data by their names: metrics of each step, and settings."""
    runs = {}
    for name, entry in json.loads((DATA / "sick_runs.json").read_text(encoding="utf-8")).items():
        steps = zip(*entry["metrics"].values(), strict=True)
        records = [{k: x for k, x in zip(entry["metrics"], step, strict=True) if x != ""} for step in steps]
        settings = StageSettings(entry["section"], entry["max_steps"])
        runs[name] = ([{"stage": "s", **record} for record in records], settings)
    return runs


@cache
def diagnosed() -> dict[str, tuple[str, Finding]]:
    """Return the finding that comes first in a recorded run, by its name, with the name of the run."""
    runs: dict[str, tuple[str, Finding]] = {}
    for name, (records, settings) in recorded().items():
        for finding in diagnose(records, "s", settings)[:1]:
            runs.setdefault(finding.name, (name, finding))
    return runs


def evidence(rule: Rule) -> str:
    """Return a run or settings that have a finding, and what `rlm why` or `rlm check` says of them."""
    if rule.name in diagnosed():
        name, finding = diagnosed()[rule.name]
        steps = len([record for record in recorded()[name][0] if "grad_norm" in record])
        run = yaml.safe_load((DATA / "sick_runs.yaml").read_text(encoding="utf-8"))[name]
        changes = {"rewards": [run["own"], {"name": "accuracy", "weight": 0}]} if "own" in run else run["changes"]
        text = (
            f"The recorded run “{name}” of {steps} steps, diagnosed when this page was built. A sound recipe, changed:"
        )
        return "\n\n".join([text, code(yaml.safe_dump(changes, sort_keys=False).strip(), "yaml"), said(finding)])
    overrides = dict(re.findall(r"([\w.]+)=(.+?)(?= [\w.]+=|$)", rule.example))
    said_of = settings_with(rule, overrides) if overrides and rule.is_foreseen else ""
    return said_of or message(rule)


def settings_with(rule: Rule, overrides: Mapping[str, str]) -> str:
    """Return what `rlm check` says of a sound recipe with overrides that violate a rule; empty if it says nothing."""
    section = copy.deepcopy(dict(recorded()[HEALTHY][1].section))
    for path, value in overrides.items():
        *parents, key = path.split(".")
        inner: Any = section
        for parent in parents:
            inner[parent] = inner[parent] if isinstance(inner.get(parent), dict) else {}
            inner = inner[parent]
        inner[key] = yaml.safe_load(value)
    said_of = [finding for finding in foresee("s", StageSettings(section, 100)) if finding.name == rule.name]
    return "\n\n".join(["`rlm check` of a sound recipe with these settings:", said(said_of[0])]) if said_of else ""


def said(finding: Finding) -> str:
    """Return a finding as `rlm why` prints it."""
    return code(f"{finding.name}\n  evidence  {finding.evidence}\n  try       {finding.remedy}", "text")


def readers(metric: str) -> list[str]:
    """Return the names of the rules that read a metric."""
    return [rule.name for rule in RULES if any(covers(metric, name) for name in rule.healthy)]


def covers(metric: str, name: str) -> bool:
    """Return True if a documented name, which may have alternatives and placeholders, covers a metric.

    >>> covers("rewards/<label>/<mean|std>", "rewards/accuracy/std"), covers("entropy", "entropy/of_start")
    (True, False)
    """
    parts = re.split(r"<([^>]*)>", metric)
    pattern = "".join(f"({x})" if n % 2 and "|" in x else ".+" if n % 2 else re.escape(x) for n, x in enumerate(parts))
    return re.fullmatch(pattern, name) is not None


def healthy_values(metric: str) -> Sequence[tuple[str, float, float]]:
    """Return (name, first, last value) of a metric in the recorded healthy run."""
    records = recorded()[HEALTHY][0]
    names = [name for name in dict.fromkeys(key for record in records for key in record) if covers(metric, name)]
    columns = {name: [x[name] for x in records if isinstance(x.get(name), int | float)] for name in names}
    return [(name, values[0], values[-1]) for name, values in columns.items() if values]


def message(rule: Rule) -> str:
    """Return what `rlm why` prints of a rule whose metrics are at their bounds."""
    bounds = [limits.get("low", limits.get("high", 0.0)) for limits in rule.healthy.values()]
    settings = recorded()[HEALTHY][1]
    text = rule.evidence.format(*bounds, label="accuracy", settings=settings)
    lines = [rule.name, f"  evidence  {text}", f"  try       {rule.remedy(settings)}"]
    return "\n\n".join(
        ["Printed at the bounds of the rule, with the settings of a sound recipe:", code("\n".join(lines), "text")]
    )
