"""The diagnosis of a stage before its first step, and while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

from rlm_lab.data_facts import data_facts
from rlm_lab.findings import Finding, diagnose, foresee, is_suspicious
from rlm_lab.quantities import StageSettings
from rlm_lab.rules import RULES
from rlm_plugins.stage import Stage

WINDOW = max(rule.steps for rule in RULES)
"""Number of last steps by which the rules are checked."""


def warnings(stage: Stage) -> list[str]:
    """Return what follows from the settings and the data set of a stage, a line per finding."""
    tokenizer = None
    with suppress(Exception):  # that of a later stage, or not downloaded: the run reports it
        tokenizer = stage.source.tokenizer()
    facts = {} if tokenizer is None else data_facts(stage.environment_spec, tokenizer)
    settings = StageSettings(stage.body, max(stage.settings.get("max_steps") or 0, 0))
    return [str(finding) for finding in foresee(stage.name, settings, facts)]


class LiveDiagnosis(TrainerCallback):  # type: ignore[misc]
    """Prints each finding once, at the first step at which its rule is violated with certainty.

    It adds the facts of the data set to the metrics of the first step.

    Attributes:
        findings: Those of the stage so far, by name and label.
    """

    def __init__(self, stage: Stage, console: Console, *, is_main: bool = True) -> None:
        self._stage, self._console, self._is_main = stage, console, is_main
        self._first: list[Mapping[str, Any]] = []
        self._last: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)
        self._facts: dict[str, float] = {}
        self.findings: dict[tuple[str, str], Finding] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compute the facts of the data set."""
        tokenizer = getattr(kwargs.get("processing_class"), "tokenizer", kwargs.get("processing_class"))
        if state.global_step == 0 and self._is_main and tokenizer is not None:
            self._facts = data_facts(self._stage.environment_spec, tokenizer)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        """Diagnose the last steps."""
        if "grad_norm" not in logs:
            return
        logs |= self._facts
        self._facts = {}
        record = {"stage": self._stage.name, "step": state.global_step, **logs}
        if len(self._first) < 2:
            self._first.append(record)
        else:
            self._last.append(record)
        settings = StageSettings(self._stage.body, state.max_steps)
        reported = {name for name, label in self.findings if not label}
        if not is_suspicious([*self._first, record], self._stage.name, settings, reported):
            return
        for finding in diagnose([*self._first, *self._last], self._stage.name, settings, last=WINDOW):
            key = finding.name, finding.label
            if key not in self.findings and finding.severity > 1:
                self._console.print(f"  {finding}", markup=False, highlight=False, style="yellow", soft_wrap=True)
            self.findings.setdefault(key, finding)
