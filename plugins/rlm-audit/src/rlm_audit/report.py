"""The report of ``rlm reward audit`` as text: counts, then the classes with mistakes, then the mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.report.text_layout import columns, titled

_CUT = 160
"""Characters of an example."""


def render(report: Mapping[str, Any]) -> str:
    """Return the report as text."""
    cases = f"{report['cases']} generated cases of '{report['family']}', seed {report['seed']}"
    text = f"reward {report['reward']}: {cases}"
    text += titled("counts", columns(_counts(report)))
    listed = [each for each in report["classes"] if each["mistakes"]]
    mistakes = columns(_classes(report, listed)) if listed else f"  none in {len(report['classes'])} classes"
    text += titled("mistakes by class", mistakes)
    if lines := [line for each in listed for line in _examples(each)]:
        text += titled("mistakes, the shortest of each class", "\n".join(lines))
    return text + f"\n\nslowest batch: {1000 * report['slowest']:.1f} ms per case"


def _counts(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "wrong answers paid", "right answers rejected", "unscored")]
    total = report["totals"]
    counts = [f"{total[kind]['mistakes']} of {total[kind]['cases']}" for kind in ("false_accepts", "false_rejects")]
    rows.append((report["reward"], *counts, str(total["unscored"])))
    return rows


def _classes(report: Mapping[str, Any], listed: list[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("class", "must be", "cases", report["reward"])]
    rows += [(each["class"], each["expected"], str(each["cases"]), str(each["mistakes"])) for each in listed]
    return rows


def _examples(each: Mapping[str, Any]) -> list[str]:
    verdict = "rejected" if each["expected"] == "right" else "paid"
    lines = [f"  {each['class']} ({verdict})"] if each["examples"] else []
    for example in each["examples"]:
        given = ", ".join(f"{name}: {_short(value)}" for name, value in example["columns"].items())
        lines.append(f"    {given}; {verdict}: {_short(example['answer'])}")
    return lines


def _short(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= _CUT else f"{text[:_CUT]}… ({len(text)} characters)"
