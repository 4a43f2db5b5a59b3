"""``rlm why``: the diagnosis of a run, finished or running, from its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_lab.quantities import StageSettings
from rlm_lab.rules import SEVERITY, diagnose, is_of_scores
from rlm_plugins.cli.output import echo
from rlm_plugins.durable.files import JsonLines
from rlm_plugins.errors import short
from rlm_plugins.report.text_layout import printable
from rlm_plugins.run.recipe_argument import recorded


def _warn(line: str) -> None:
    echo(line, err=True)  # standard output is the report, or JSON


def why(folder: Path, warn: Callable[[str], None] = _warn) -> list[dict[str, Any]]:
    """Return the findings of every stage of a run, the most severe of each stage first.

    Args:
        folder: The folder of a run.
        warn: Called with one line about each damage of the log.

    Returns:
        One entry per stage: `stage`, `steps`, `findings` (see :class:`rlm_lab.rules.Finding`) and `sample`: the last
        stored completion with its prompt, columns and rewards, if a finding is about what completions earn.

    Raises:
        RlmError: The folder is not that of a run.
    """
    sections, records = _sections(folder), JsonLines(folder / "metrics.jsonl", warn).records()
    stages = dict.fromkeys(str(record["stage"]) for record in records if "stage" in record)
    report = []
    for stage in stages:
        steps = [record["step"] for record in records if record.get("stage") == stage and "grad_norm" in record]
        number = int(stage[:2]) if stage[:2].isdigit() else 1
        section = sections[number - 1] if number <= len(sections) else {}
        planned = (section.get("trainer") or {}).get("max_steps") or 0
        settings = StageSettings(section, planned if isinstance(planned, int) else 0)
        found = diagnose(records, stage, settings)
        sample = _last_sample(folder, stage, warn) if any(is_of_scores(finding) for finding in found) else None
        findings = [finding.as_data() for finding in found]
        report.append({"stage": stage, "steps": len(steps), "findings": findings, "sample": sample})
    return report


def _last_sample(folder: Path, stage: str, warn: Callable[[str], None]) -> dict[str, Any] | None:
    kept = ("step", "prompt", "completion", "columns", "rewards")
    samples = [x for x in JsonLines(folder / "samples.jsonl", warn).records() if x.get("stage") == stage]
    return {key: samples[-1].get(key) for key in kept} if samples else None


def _sample_text(sample: Mapping[str, Any]) -> str:
    """Return a stored completion, its end if it is long, beside what it was compared with and what it earned."""
    columns = "; ".join(f"{name} {short(repr(value), 100)}" for name, value in (sample["columns"] or {}).items())
    earned = ", ".join(f"{label} {score}" for label, score in (sample["rewards"] or {}).items())
    completion = repr(str(sample["completion"])[-100:])
    return f"{completion} to {short(repr(sample['prompt']))}, step {sample['step']}; {columns}; earned: {earned}"


def render(folder: Path, report: Sequence[dict[str, Any]]) -> str:
    """Return the diagnosis as text."""
    lines = []
    for entry in report:
        count = len(entry["findings"])
        total = f"{count} finding{'s' * (count > 1)}" if count else "nothing found"
        lines.append(f"{entry['stage']}: {entry['steps']} steps, {total}")
        for finding in entry["findings"]:
            span = f"steps {finding['step']} to {finding['until']}"
            lines.append(f"  {finding['name']} ({SEVERITY[finding['severity']]}, {span})")
            lines += [f"    evidence  {finding['evidence']}", f"    try       {finding['remedy']}"]
        if entry.get("sample"):
            lines.append(f"  completion  {_sample_text(entry['sample'])}")
    if any(entry["findings"] for entry in report):
        lines.append("`rlm explain NAME` explains a finding: its bounds, its symptoms, and an example")
    return "\n".join(map(printable, lines)) or f"{folder}: no step was logged yet"


def _sections(folder: Path) -> list[dict[str, Any]]:
    """Return the section of each stage of the resolved recipe."""
    document = recorded(folder, "rlm why runs/NAME")
    bodies = document.get("stages") or [document] if isinstance(document, dict) else []
    return [body for body in bodies if isinstance(body, dict)]
