"""The essentials of a run in the terminal: each step, the reward curve, the last completion, the diagnosis."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm_lab.why import why

from rlm_plugins.durable.files import json_object
from rlm_plugins.run.recipe_argument import recorded

SECONDS = 0.5
"""Pause between two looks at the logs."""
_BARS = "▁▂▃▄▅▆▇█"
_SHOWN = ("reward", "loss", "entropy", "kl", "grad_norm", "completions/mean_length")
_TEXT = 160


@dataclass
class GrowingLog:
    """Reader of a log of one JSON object per line, to which another process appends.

    A line without its end is left for the next time; a damaged line is skipped. A shorter file, which a resumed run
    leaves, is read from its start.
    """

    path: Path
    _position: int = field(default=0, init=False)

    def new_records(self) -> list[dict[str, Any]]:
        """Return the objects of the lines that were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                self._position = file.seek(self._position if size >= self._position else 0)
                data = file.read()
        except OSError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._position += len(complete)
        return [record for line in complete.splitlines() if (record := json_object(line)) is not None]


def follow(
    run: Path,
    width: int,
    log_line: Callable[[str], None],
    *,
    is_over: Callable[[Path], bool] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Print each step of a run as it is logged, and return when the run is done.

    Args:
        run: Folder of the run; it may have just begun.
        width: Columns of the terminal.
        log_line: Called with each line.
        is_over: Returns True if no further line will come; default: a summary exists, or no process writes.
        pause: Called with the seconds between two looks.

    Raises:
        RlmError: The folder is not that of a run.
    """
    recorded(run, "rlm view --follow runs/NAME")
    logs = {name: GrowingLog(run / f"{name}.jsonl") for name in ("metrics", "samples")}
    ended, rewards, findings = is_over or has_ended, [], set[str]()  # type: ignore[var-annotated]
    while True:
        over = ended(run)  # before the logs are read, so that the last lines are seen
        samples = logs["samples"].new_records()
        for record in logs["metrics"].new_records():
            log_line(step_line(record, rewards, width))
        if samples:
            log_line(
                _cut(
                    f"  last  {_one_line(samples[-1].get('prompt'))} → {_one_line(samples[-1].get('completion'))}",
                    width,
                )
            )
        for line in _findings(run):
            if line not in findings:
                findings.add(line)
                log_line(_cut(f"  ! {line}", width * 3))
        if over:
            return
        pause(SECONDS)


def has_ended(run: Path) -> bool:
    """Return True if a run is finished, or no process writes into its folder any more."""
    if (run / "summary.json").exists():
        return True
    try:
        holder = json.loads((run / "lock").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return (run / "metrics.jsonl").exists()
    except (OSError, ValueError):
        return False  # it is being written
    return _is_gone(holder)


def _is_gone(holder: Any) -> bool:
    """Return True if the process of a lock was on this host and has ended."""
    import platform

    import psutil

    if not isinstance(holder, Mapping) or holder.get("host") != platform.node():
        return False
    return not psutil.pid_exists(int(holder.get("pid") or 0))


def step_line(record: Mapping[str, Any], rewards: list[float], width: int) -> str:
    """Return one step as a line with the curve of the rewards so far, to which that of the step is added.

    >>> step_line({"step": 2, "reward": 0.5, "loss": 0.1}, [0.0], 60)
    'step 2  reward 0.5  loss 0.1  ▁█'
    """
    reward = record.get("reward")
    if isinstance(reward, int | float) and math.isfinite(reward):
        rewards.append(float(reward))
    held_out = [name for name in record if name.startswith("held_out/") and name.count("/") == 1]
    shown = [name for name in (*_SHOWN, *held_out) if isinstance(record.get(name), int | float)]
    numbers = [f"{name} {record[name]:.4g}" for name in shown if not name.endswith(("/low", "/high", "/rows"))]
    words = [f"step {record.get('step', '?')}", *numbers]
    return _cut("  ".join([*words, sparkline(rewards)] if "reward" in record else words), width)


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Return the last values as a line of bars, from the least to the largest.

    >>> sparkline([0, 1, 2, 7])
    '▁▂▃█'
    """
    last = values[-width:]
    low, high = min(last, default=0.0), max(last, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in last)


def _findings(run: Path) -> list[str]:
    """Return a line per finding of the diagnosis; nothing while a file is being replaced."""
    try:
        stages = why(run, lambda _line: None)
    except Exception:  # a log in progress is no reason to stop looking
        return []
    findings = [finding for stage in stages for finding in stage["findings"] if finding["severity"] > 1]
    return [f"{finding['name']}: {finding['evidence']}; try {finding['remedy']}" for finding in findings]


def _one_line(text: Any) -> str:
    """Return a text on one line; characters that a terminal would obey are shown by their code."""
    flat = " ".join(str(text or "").split())[:_TEXT]
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in flat)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 1, 1)]}…"
