"""The diagnosis of a stage from its metrics: a pure function of the records of ``metrics.jsonl``, and of the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from rlm_lab.quantities import Record, StageSettings, of_settings, steps_of
from rlm_lab.rules import RULES, Rule


@dataclass(frozen=True)
class Finding:
    """A violated rule.

    Args:
        name: Name of the rule.
        stage: Name of the stage.
        step: First step of the longest violation.
        until: Last step of the violation.
        severity: 3: the run cannot learn, 2: it learns badly, 1: a note.
        evidence: The metrics, as a sentence.
        remedy: Override of the recipe, or advice.
        label: Reward or rollout source that is concerned; empty for others.
    """

    name: str
    stage: str
    step: int
    until: int
    severity: int
    evidence: str
    remedy: str
    label: str = ""

    def __str__(self) -> str:
        """Return one line: name, evidence and remedy."""
        return f"{self.name}: {self.evidence}; try {self.remedy}"

    def as_data(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def diagnose(records: Sequence[Record], stage: str, settings: StageSettings, last: int = 0) -> list[Finding]:
    """Return the findings of a stage, the most severe first.

    Args:
        records: Lines of ``metrics.jsonl``.
        stage: Name of the stage.
        settings: Settings of the stage.
        last: Number of steps at the end to look at; 0: all of them.
    """
    return _findings(steps_of(records, stage, settings)[-last:], stage, settings)


def foresee(stage: str, settings: StageSettings, data: Mapping[str, float] | None = None) -> list[Finding]:
    """Return the findings that follow from the settings of a stage, before its first step.

    Args:
        stage: Name of the stage.
        settings: Settings of the stage.
        data: Facts of its data set (:func:`rlm_lab.data_facts.data_facts`).
    """
    return _findings([{"step": 0, **of_settings(settings), **(data or {})}], stage, settings)


def is_suspicious(records: Sequence[Record], stage: str, settings: StageSettings, reported: Collection[str]) -> bool:
    """Return True if the last step violates a rule that has not been reported; other steps need no diagnosis.

    Args:
        records: The first two lines of a stage, and the last one.
        stage: Name of the stage.
        settings: Settings of the stage.
        reported: Names of the rules whose violation has been reported.
    """
    steps = steps_of(records, stage, settings)[-1:]
    for rule in (rule for rule in RULES if rule.name not in reported):
        for label in _labels(rule, steps):
            if rule.applies(settings, label) and any(_violates(rule, label, step) for step in steps):
                return True
    return False


def _findings(steps: Sequence[Record], stage: str, settings: StageSettings) -> list[Finding]:
    findings: list[Finding] = []
    for rule in RULES:
        for label in _labels(rule, steps):
            if rule.applies(settings, label) and (finding := _violation(rule, label, stage, steps, settings)):
                findings.append(finding)
    names = {finding.name for finding in findings}
    hidden = set(chain.from_iterable(rule.instead_of for rule in RULES if rule.name in names))
    return sorted((finding for finding in findings if finding.name not in hidden), key=lambda f: -f.severity)


def _violation(rule: Rule, label: str, stage: str, steps: Sequence[Record], settings: StageSettings) -> Finding | None:
    """Return the longest violation of a rule; None if none lasts long enough."""
    metrics = rule.metrics(label)
    longest: list[Record] = []
    current: list[Record] = []
    for step in steps:
        if not all(metric in step for metric in metrics):
            continue  # rewards are logged once per generation batch, not at each update on it
        current = [*current, step] if _violates(rule, label, step) else []
        longest = current if len(current) > len(longest) else longest
    if len(longest) < rule.steps:
        return None
    means = [_mean([step[metric] for step in longest]) for metric in metrics]
    return Finding(
        name=rule.name,
        stage=stage,
        step=int(longest[0]["step"]),
        until=int(longest[-1]["step"]),
        severity=rule.severity,
        evidence=rule.evidence.format(*means, label=label, settings=settings),
        remedy=rule.remedy(settings),
        label=label,
    )


def _violates(rule: Rule, label: str, step: Record) -> bool:
    """Return True if a step has all metrics of a rule, outside of their bounds."""
    pairs = zip(rule.bounds, rule.metrics(label), strict=True)
    return all(metric in step and bound.is_violated(step[metric]) for bound, metric in pairs)


def _labels(rule: Rule, steps: Sequence[Record]) -> list[str]:
    """Return the labels for which the first bound with a placeholder was logged; one empty label without any."""
    named = [bound.metric for bound in rule.bounds if "<label>" in bound.metric]
    if not named:
        return [""]
    prefix, suffix = named[0].split("<label>")
    logged = dict.fromkeys(chain.from_iterable(steps))
    labels = [name[len(prefix) : -len(suffix)] for name in logged if name.startswith(prefix) and name.endswith(suffix)]
    return [label for label in labels if label]


def _mean(values: Sequence[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else float("nan")
