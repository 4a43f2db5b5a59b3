"""The rules of the diagnosis, and the findings of a stage: a pure function of the records of ``metrics.jsonl``.

A rule is violated with certainty if the metrics of its last `steps` optimizer steps are all outside of their healthy
ranges. A single step outside is noise. A rule declares what it explains: layers of the training loop, or other rules. A
finding that another one explains is a symptom, and is left out. The table is `rules.toml`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rlm_lab.quantities import ENOUGH, FORESEEN, Record, StageSettings, of_settings, steps_of

SEVERITY = {3: "cannot learn", 2: "learns badly", 1: "note"}
_CONDITIONS: Mapping[str, Callable[[StageSettings, str], bool]] = {
    "": lambda settings, label: True,
    "group_baseline": lambda settings, label: settings.has_group_baseline,
    # a ratio of whole sequences is clipped two orders of magnitude more often, by design (GSPO, arXiv 2507.18071)
    "token_ratio": lambda settings, label: settings["algorithm.importance.name"] in (None, "token", "builtin/token"),
    "main_reward": lambda settings, label: label == settings.main_reward,
    "secondary_reward": lambda settings, label: label != settings.main_reward,
    "no_reward_of_length": lambda settings, label: not settings.rewards_length,
    "only_rewards": lambda settings, label: not settings["algorithm.shapers"] and not settings["teacher.model"],
    "clipped_gradients": lambda settings, label: settings["trainer.max_grad_norm"] != 0,
    "trained_reward": lambda settings, label: bool(settings.weights.get(label)),
    "leading_reward": lambda settings, label: abs(settings.weights.get(label, 0.0)) == settings.largest_weight > 0,
    "other_trained_reward": lambda settings, label: 0 < abs(settings.weights.get(label, 0.0)) < settings.largest_weight,
    "trained_main_reward": lambda settings, label: label == settings.main_reward and bool(settings.weights.get(label)),
    "no_kept_set": lambda settings, label: settings["kept_set"] is None,
    "top_k_of_one": lambda settings, label: settings["trainer.top_k"] == 1,
    "many_updates_per_batch": lambda settings, label: settings.updates_per_batch > 4,
    "other_source": lambda settings, label: label != "policy",
}
"""Name of a condition → (settings of the stage, label) → True if the ranges of a rule hold there."""


@dataclass(frozen=True)
class Rule:
    """One cause of a run that does not learn.

    Args:
        name: Name of the cause.
        healthy: Metric, or quantity of :mod:`rlm_lab.quantities` → its healthy range, ``low`` to ``high``. ``<label>``
            stands for a reward or a rollout source. All are violated if the rule is.
        evidence: Format string over the means of the metrics ({0}, {1}, …), `label` and `settings`.
        advice: What mends the cause; beside `multiply`: another cause with these symptoms, and how to tell them apart.
        multiply: Path in the recipe → factor of its number.
        condition: Name of the condition under which the ranges hold; empty: always.
        steps: Optimizer steps in a row; 0: 1 if all metrics are known before the first step, else 3.
        lasting: True if a violation lasts until the last step, as for metrics of all steps so far.
        layer: What the rule observes: sampling, text, reward, signal, update or policy; empty for settings and data.
        explains: Layers and rules that are symptoms of this one, if they are violated at the same time.
        explains_later: The same of a rule that acts through updates: what is violated from its first step on is none.
        example: Overrides of `01-addition.yaml` that violate the rule, or a description of such a run.
        severity: 3: the run cannot learn, 2: it learns badly, 1: a note.
    """

    name: str
    healthy: Mapping[str, Mapping[str, float]]
    evidence: str
    advice: str = ""
    multiply: Mapping[str, float] = field(default_factory=dict)
    condition: str = ""
    steps: int = 0
    lasting: bool = False
    layer: str = ""
    explains: Sequence[str] = ()
    explains_later: Sequence[str] = ()
    example: str = ""
    severity: int = 3

    @property
    def is_foreseen(self) -> bool:
        """True if all metrics are known before the first step."""
        return all(metric.startswith(FORESEEN) for metric in self.healthy)

    @property
    def least_steps(self) -> int:
        """Optimizer steps in a row after which a violation is certain."""
        return self.steps or (1 if self.is_foreseen else 3)

    @property
    def effects(self) -> list[str]:
        """Layers and rules that are symptoms of this one."""
        return [*self.explains, *self.explains_later]

    def is_cause_of(self, other: Rule, start: int, other_start: int) -> bool:
        """Return True if a violation of another rule is a symptom of one of this rule.

        A mean over steps is known later than its symptoms, by at most `ENOUGH` steps.

        Args:
            other: The other rule.
            start: First step of the violation of this rule.
            other_start: First step of the violation of the other rule.
        """
        names = {other.name, other.layer} if other.name != self.name else set()
        is_symptom = other_start + ENOUGH >= start and not names.isdisjoint(self.explains)
        return is_symptom or (other_start > start and not names.isdisjoint(self.explains_later))

    def labels(self, steps: Sequence[Record]) -> list[str]:
        """Return the labels for which the first metric with a placeholder was logged; one empty label without any."""
        named = [metric for metric in self.healthy if "<label>" in metric]
        if not named:
            return [""]
        prefix, suffix = named[0].split("<label>")
        logged = [x for x in dict.fromkeys(chain.from_iterable(steps)) if x.startswith(prefix) and x.endswith(suffix)]
        return list(filter(None, (name.removeprefix(prefix).removesuffix(suffix) for name in logged)))

    def violation(self, label: str, steps: Sequence[Record]) -> tuple[list[Record], int]:
        """Return the steps of the longest violation, none if it is too short, and the first step of the first one."""
        ranges = {metric.replace("<label>", label): limits for metric, limits in self.healthy.items()}
        longest: list[Record] = []
        current: list[Record] = []
        since = -1
        for step in steps:
            if not ranges.keys() <= step.keys():
                continue  # rewards are logged once per generation batch, not at each update on it
            is_violation = all(is_violated(step[metric], **limits) for metric, limits in ranges.items())
            current = [*current, step] if is_violation else []
            longest = current if len(current) > len(longest) else longest
            since = int(current[0]["step"]) if since < 0 and len(current) >= self.least_steps else since
        found = current if self.lasting else longest
        return (found if len(found) >= self.least_steps else []), since

    def described(self) -> dict[str, Any]:
        """Return the rule as text for readers: evidence, bounds, remedy, symptoms, and an example."""
        evidence = re.sub(r"\{settings\[(.+?)\]\}", r"`\1`", self.evidence.replace("{label}", "<label>"))
        factors = (f"a {'larger' if factor > 1 else 'smaller'} `{path}`" for path, factor in self.multiply.items())
        when = "before the first step" if self.is_foreseen else f"steps in a row: {self.least_steps}"
        return {
            "name": self.name,
            "severity": SEVERITY[self.severity],
            "evidence": re.sub(r"\{.*?\}", "…", evidence),
            "bounds": [f"`{metric}` {_outside(**limits)}" for metric, limits in self.healthy.items()],
            "when": when + (f", only with: {self.condition.replace('_', ' ')}" if self.condition else ""),
            "remedy": "; ".join(filter(None, (", ".join(factors), self.advice))),
            "symptoms": [f"{name} (any)" if name in _TABLE_LAYERS else name for name in self.effects],
            "example": self.example,
        }

    def remedy(self, settings: StageSettings) -> str:
        """Return an override of the recipe, advice, or both."""
        override = " ".join(_scaled(path, factor, settings[path]) for path, factor in self.multiply.items())
        return "; ".join(filter(None, (override, self.advice)))


def is_violated(value: float | None, low: float = -math.inf, high: float = math.inf) -> bool:
    """Return True if a logged value is outside of its range; null in the log (NaN or infinite) always is.

    >>> is_violated(0.05, low=0.1), is_violated(None)
    (True, True)
    """
    return value is None or not low <= value <= high


def _outside(low: float = -math.inf, high: float = math.inf) -> str:
    """Return the values that violate a range as text.

    >>> _outside(low=0.1), _outside(0.8, 1.2), _outside()
    ('below 0.1', 'below 0.8 or above 1.2', 'not finite')
    """
    limits = [f"below {low:g}"] * (low > -math.inf) + [f"above {high:g}"] * (high < math.inf)
    return " or ".join(limits) or "not finite"


def _scaled(path: str, factor: float, value: Any) -> str:
    if isinstance(value, int | float):
        return f"{path}={value * factor:g}"
    return f"a {'larger' if factor > 1 else 'smaller'} {path}"


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_TABLE_LAYERS = _TABLE.pop("layers")
QUANTITIES: Mapping[str, str] = _TABLE.pop("quantities")
"""Quantity of :mod:`rlm_lab.quantities` that the rules read → its meaning."""
_LAYERS = {name: layer for layer, names in _TABLE_LAYERS.items() for name in names}
RULES = tuple(Rule(name, layer=_LAYERS.get(name, ""), **entry) for name, entry in _TABLE.items())
"""Findings of one severity are listed in this order."""
_OF_SCORES = ("sampling", "reward", "signal")
"""Layers of rules whose evidence ends with the scores of the last step."""
_BY_NAME = {rule.name: rule for rule in RULES}


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
        since: First step of the first violation.
    """

    name: str
    stage: str
    step: int
    until: int
    severity: int
    evidence: str
    remedy: str
    label: str = ""
    since: int = 0

    def __str__(self) -> str:
        """Return one line: name, evidence and remedy."""
        return f"{self.name}: {self.evidence}; try {self.remedy}"

    def as_data(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def diagnose(records: Sequence[Record], stage: str, settings: StageSettings) -> list[Finding]:
    """Return the findings of a stage without symptoms of others, the most severe first.

    Args:
        records: Lines of ``metrics.jsonl``.
        stage: Name of the stage.
        settings: Settings of the stage.
    """
    return causes(violations(steps_of(records, stage, settings), stage, settings))


def foresee(stage: str, settings: StageSettings, data: Mapping[str, float] | None = None) -> list[Finding]:
    """Return the findings that follow from the settings of a stage, before its first step.

    Args:
        stage: Name of the stage.
        settings: Settings of the stage.
        data: Facts of its data set (:func:`rlm_lab.live.data_facts`).
    """
    return causes(violations([{"step": 0, **of_settings(settings), **(data or {})}], stage, settings))


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that no other one explains, the most severe first.

    Of several that explain each other, also in a circle, the earliest is kept.
    """
    first = sorted(findings, key=lambda finding: finding.since)
    places = range(len(first))
    symptoms = [{m for m in places if _explains(finding, first[m])} for finding in first]
    for cause in places:
        for known in symptoms:
            known |= symptoms[cause] if cause in known else set()
    is_symptom = [any(n in symptoms[m] and (m not in symptoms[n] or m < n) for m in places if m != n) for n in places]
    kept = [finding for finding, explained in zip(first, is_symptom, strict=True) if not explained]
    order = list(_BY_NAME)
    return sorted(kept, key=lambda finding: (-finding.severity, order.index(finding.name)))


def _explains(cause: Finding, finding: Finding) -> bool:
    return _BY_NAME[cause.name].is_cause_of(_BY_NAME[finding.name], cause.since, finding.since)


def violations(steps: Sequence[Record], stage: str, settings: StageSettings) -> list[Finding]:
    """Return a finding for each violated rule, symptoms included.

    Args:
        steps: Steps with the quantities of :class:`rlm_lab.quantities.StepMetrics`.
        stage: Name of the stage.
        settings: Settings of the stage.
    """
    findings: list[Finding] = []
    for rule in RULES:
        for label in rule.labels(steps):
            violation, since = rule.violation(label, steps)
            if violation and _CONDITIONS[rule.condition](settings, label):
                findings.append(replace(_finding(rule, label, stage, violation, settings), since=since))
    return findings


def _finding(rule: Rule, label: str, stage: str, violation: Sequence[Record], settings: StageSettings) -> Finding:
    means = [_mean([step[metric.replace("<label>", label)] for step in violation]) for metric in rule.healthy]
    evidence = rule.evidence.format(*means, label=label, settings=settings)
    scores = [f"{name} {value:.0%}" for name, value in violation[-1].get("scores", {}).items()]
    return Finding(
        name=rule.name,
        stage=stage,
        step=int(violation[0]["step"]),
        until=int(violation[-1]["step"]),
        severity=rule.severity,
        evidence=f"{evidence}; scores: {', '.join(scores)}" if scores and rule.layer in _OF_SCORES else evidence,
        remedy=rule.remedy(settings),
        label=label,
    )


def is_of_scores(finding: Finding) -> bool:
    """Return True if a finding is about what completions earn, rather than settings, data or updates."""
    return _BY_NAME[finding.name].layer in _OF_SCORES


def _mean(values: Sequence[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else float("nan")
