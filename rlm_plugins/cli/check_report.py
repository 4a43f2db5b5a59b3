"""The entries of :mod:`rlm_plugins.cli.check` as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.cli.explain_report import objective
from rlm_plugins.cli.text_layout import columns, short, titled

Entry = dict[str, Any]


def render(stage: Entry) -> str:
    """Return an entry of `check.examine` as text."""
    parts = ((p["slot"], p["name"], f"{p['plugin']} ({p['origin']})", short(p["file"])) for p in stage["parts"])
    data = ((d["name"], f"for {', '.join(d['needed_by'])}", f"from {d['supplied_by']}") for d in stage["data"])
    return (
        stage["name"]
        + titled("model", f"  {stage['model']}")
        + titled("parts", columns(parts))
        + titled("data", columns(data))
        + titled("batch", "\n".join(f"  {line}" for line in stage["batch"]))
        + titled("objective", objective(stage["objective"], stage["legend"]))
        + "".join(_lines(key, lines) for key, lines in stage["sections"].items())
        + _lines("warnings", stage["warnings"])
    )


def _lines(title: str, lines: Sequence[str]) -> str:
    return titled(title, "\n".join(f"  {line}" for line in lines)) if lines else ""
