"""The report of ``rlm reward audit`` as text: totals, then a line per class, then the smallest mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.report.text_layout import columns, titled

_CUT = 160
"""Characters of an example."""


def render(report: Mapping[str, Any]) -> str:
    """Return the report as text."""
    text = (
        f"reward {report['reward']}: {report['cases']} generated cases of '{report['family']}', seed {report['seed']}"
    )
    text += titled("totals, with the 95 % interval", columns(_totals(report)))
    text += titled("mistakes by class", columns(_classes(report)))
    lines = [line for each in report["classes"] if each["smallest"] for line in _example(each)]
    text += titled("smallest mistake of each class", "\n".join(lines) or "  none")
    return text + f"\n\nslowest batch: {1000 * report['slowest']:.1f} ms per case"


def _totals(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "wrong answers accepted", "right answers rejected", "unscored")]
    for name, total in report["totals"].items():
        label = report["reward"] if name == "reward" else name
        shares = [_with_interval(total[kind]) for kind in ("false_accepts", "false_rejects")]
        rows.append((label, *shares, str(total["unscored"])))
    return rows


def _with_interval(share: Mapping[str, Any]) -> str:
    if not share["cases"]:
        return "–"
    low, high = 100 * share["low"], 100 * share["high"]
    return f"{share['mistakes']} of {share['cases']} ({max(low, 0):.2f}–{high:.2f} %)"


def _classes(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    others = [name for name in report["totals"] if name != "reward"]
    rows = [("class", "must be", "cases", report["reward"], *others)]
    for each in report["classes"]:
        counts = [str(each["others"][name]) for name in others]
        rows.append((each["class"], each["expected"], str(each["cases"]), str(each["mistakes"]), *counts))
    return rows


def _example(each: Mapping[str, Any]) -> list[str]:
    smallest = each["smallest"]
    given = ", ".join(f"{name}: {_short(value)}" for name, value in smallest["columns"].items())
    mistake = "rejected" if each["expected"] == "right" else "accepted"
    return [f"  {each['class']} ({mistake})", f"    {given}", f"    {mistake}: {_short(smallest['answer'])}"]


def _short(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= _CUT else f"{text[:_CUT]}… ({len(text)} characters)"
