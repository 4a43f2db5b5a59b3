"""The callback that diagnoses a stage while it runs, and the diagnosis of a run folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

from rlm_plugins.diagnosis import RULES, Finding, StageSettings, diagnose, is_suspicious
from rlm_plugins.stage import Stage

WINDOW = max(rule.steps for rule in RULES)
"""Number of last steps by which the rules are checked."""


class LiveDiagnosis(TrainerCallback):  # type: ignore[misc]
    """Prints each finding once, at the first step at which its rule is violated with certainty.

    Attributes:
        findings: Those of the stage so far, by name and label.
    """

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage, self._console = stage, console
        self._first: list[Mapping[str, Any]] = []
        self._last: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)
        self.findings: dict[tuple[str, str], Finding] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Diagnose the last steps."""
        if "grad_norm" not in logs:
            return
        record = {"stage": self._stage.name, "step": state.global_step, **logs}
        if len(self._first) < 2:
            self._first.append(record)
        else:
            self._last.append(record)
        settings = StageSettings(self._stage.body, state.max_steps)
        reported = {name for name, label in self.findings if not label}
        if not is_suspicious([*self._first, record], self._stage.name, settings, reported):
            return
        new = diagnose([*self._first, *self._last], self._stage.name, settings, last=WINDOW)
        for finding in new:
            key = finding.name, finding.label
            if key not in self.findings and finding.severity > 1:
                self._console.print(f"  {finding}", markup=False, highlight=False, style="yellow", soft_wrap=True)
            self.findings.setdefault(key, finding)
