"""The settings of a stage that decide whether a rule applies, and what its remedy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULTS = {
    "trainer.max_completion_length": 256,
    "trainer.num_generations": 8,
    "trainer.temperature": 1.0,
}
"""Defaults of TRL for the fields that remedies change."""
OF_LENGTH = ("length", "brevity", "overlong", "budget", "cosine")
"""Words in the names of parts that reward or punish length."""


@dataclass(frozen=True)
class StageSettings:
    """One stage of a resolved recipe.

    Args:
        section: The stage's section of ``recipe.yaml``.
        max_steps: Optimizer steps of the stage; 0 if unknown.
    """

    section: Mapping[str, Any]
    max_steps: int = 0

    def __getitem__(self, path: str) -> Any:
        """Return the value at a dotted path; TRL's default, or None, where the recipe has none."""
        value: Any = self.section
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return DEFAULTS.get(path) if value is None else value

    @property
    def maximum_reward(self) -> float:
        """Sum of the positive weights: the reward of a perfect completion if each reward is at most 1."""
        return sum(max(reward.get("weight", 1.0), 0.0) for reward in self._rewards())

    @property
    def main_weight(self) -> float | None:
        """Weight of the main reward; None without rewards."""
        weights = [r.get("weight", 1.0) for r in self._rewards() if (r.get("as") or r.get("name")) == self.main_reward]
        return weights[0] if weights else None

    @property
    def weights(self) -> dict[str, float]:
        """Label of each reward → its weight; without those whose weight is a schedule."""
        weights = {str(r.get("as") or r.get("name")): r.get("weight", 1.0) for r in self._rewards()}
        return {label: float(weight) for label, weight in weights.items() if isinstance(weight, int | float)}

    @property
    def kl_beta(self) -> float | None:
        """Coefficient of the penalty `kl`; None without it, or if it is a schedule."""
        penalties = self["algorithm.penalties"] or []
        named = [p for p in penalties if isinstance(p, Mapping) and p.get("name") in ("kl", "builtin/kl")]
        beta = named[0].get("beta") if named else None
        return beta if isinstance(beta, int | float) else None

    @property
    def main_reward(self) -> str:
        """Label of the reward that is evaluated; else that of the largest weight."""
        rewards = sorted(self._rewards() or [{}], key=lambda reward: -abs(reward.get("weight", 1.0)))
        return str(self["evaluation.metric"] or rewards[0].get("as") or rewards[0].get("name"))

    @property
    def rewards_length(self) -> bool:
        """True if a reward or a shaper depends on the length of a completion, by its name."""
        names = [str(reward.get("name")) for reward in self._rewards()]
        names += [str(shaper.get("name")) for shaper in self["algorithm.shapers"] or []]
        return any(word in name for name in names for word in OF_LENGTH)

    def _rewards(self) -> list[dict[str, Any]]:
        """Return the rewards as mappings; a recipe may give a name alone."""
        return [reward if isinstance(reward, dict) else {"name": reward} for reward in self["rewards"] or []]

    @property
    def has_lora(self) -> bool:
        """True if an adapter is trained, not the model."""
        return bool(self["model.lora"])

    @property
    def has_group_baseline(self) -> bool:
        """True if the advantage compares completions of one prompt, without a value function."""
        return self["trainer.num_generations"] > 1 and bool(self["algorithm.advantage"]) and not self["critic"]

    @property
    def updates_per_batch(self) -> float:
        """Optimizer steps that use one generation batch."""
        accumulated = self["trainer.gradient_accumulation_steps"] or 1
        generated = self["trainer.steps_per_generation"] or accumulated
        return (self["trainer.num_iterations"] or 1) * generated / accumulated
