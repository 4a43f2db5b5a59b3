"""The rules: bounds of metrics, their condition, the evidence, and the override that mends the cause.

A rule is violated with certainty if all of its bounds are violated in its last `steps` optimizer steps. A single step
beyond a bound is noise. The table is `rules.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm_lab.quantities import StageSettings


@dataclass(frozen=True)
class Bound:
    """The healthy range of a metric.

    Args:
        metric: Name of a metric, or of a quantity of :mod:`rlm_lab.quantities`. ``<label>`` stands for a
            reward or a rollout source.
        low: Least healthy value.
        high: Largest healthy value.
    """

    metric: str
    low: float = -math.inf
    high: float = math.inf

    def is_violated(self, value: float | None) -> bool:
        """Return True if a logged value is outside the range; null in the log (NaN or infinite) always is.

        >>> Bound("entropy", low=0.1).is_violated(0.05), Bound("grad_norm").is_violated(None)
        (True, True)
        """
        return value is None or not self.low <= value <= self.high


_CONDITIONS: Mapping[str, Callable[[StageSettings, str], bool]] = {
    "": lambda settings, label: True,
    "group_baseline": lambda settings, label: settings.has_group_baseline,
    # a ratio of whole sequences is clipped two orders of magnitude more often, by design (GSPO, arXiv 2507.18071)
    "token_ratio": lambda settings, label: settings["algorithm.importance.name"] in (None, "token", "builtin/token"),
    "main_reward": lambda settings, label: label == settings.main_reward,
    "secondary_reward": lambda settings, label: label != settings.main_reward,
    "no_reward_of_length": lambda settings, label: not settings.rewards_length,
    "no_shapers": lambda settings, label: not settings["algorithm.shapers"],
    "clipped_gradients": lambda settings, label: settings["trainer.max_grad_norm"] != 0,
    "top_k_of_one": lambda settings, label: settings["trainer.top_k"] == 1,
    "many_updates_per_batch": lambda settings, label: settings.updates_per_batch > 4,
    "other_source": lambda settings, label: label != "policy",
}
"""Name of a condition → (settings of the stage, label) → True if the bounds of a rule hold there."""


@dataclass(frozen=True)
class Rule:
    """One cause of a run that does not learn.

    Args:
        name: Name of the cause.
        bounds: Healthy ranges; all are violated if the rule is.
        evidence: Format string over the means of the metrics of `bounds` ({0}, {1}, …), `label` and `settings`.
        advice: What mends the cause; empty if `multiply` does.
        multiply: Path in the recipe → factor of its number.
        condition: Name of the condition under which the bounds hold; empty: always.
        steps: Optimizer steps in a row.
        instead_of: Rules that describe the same observation less precisely.
        severity: 3: the run cannot learn, 2: it learns badly, 1: a note.
    """

    name: str
    bounds: tuple[Bound, ...]
    evidence: str
    advice: str = ""
    multiply: Mapping[str, float] = field(default_factory=dict)
    condition: str = ""
    steps: int = 3
    instead_of: tuple[str, ...] = ()
    severity: int = 3

    def metrics(self, label: str) -> list[str]:
        """Return the metrics of its bounds, for a reward or rollout source."""
        return [bound.metric.replace("<label>", label) for bound in self.bounds]

    def applies(self, settings: StageSettings, label: str) -> bool:
        """Return True if the bounds hold for a stage, and for this reward or rollout source."""
        return _CONDITIONS[self.condition](settings, label)

    def remedy(self, settings: StageSettings) -> str:
        """Return an override of the recipe, or advice."""
        return self.advice or " ".join(_scaled(path, factor, settings) for path, factor in self.multiply.items())


def _scaled(path: str, factor: float, settings: StageSettings) -> str:
    value = settings[path]
    if not isinstance(value, int | float):
        return f"a {'larger' if factor > 1 else 'smaller'} {path}"
    return f"{path}={value * factor:g}"


def _rules() -> tuple[Rule, ...]:
    table: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    rules = []
    for name, entry in table.items():
        bounds = tuple(Bound(metric, **limits) for metric, limits in entry.pop("healthy").items())
        instead_of = tuple(entry.pop("instead_of", ()))
        rules.append(Rule(name, bounds, instead_of=instead_of, **entry))
    return tuple(rules)


RULES = _rules()
"""Causes before their symptoms: findings of one severity are listed in this order."""
