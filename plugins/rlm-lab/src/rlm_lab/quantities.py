"""Settings of a stage, metrics of its steps, and quantities derived from both: all that the rules read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

Record = Mapping[str, Any]
DEFAULTS = {"trainer.max_completion_length": 256, "trainer.num_generations": 8, "trainer.temperature": 1.0}
"""Defaults of TRL for the fields that remedies change."""
OF_LENGTH = ("length", "brevity", "overlong", "budget", "cosine")
"""Words in the names of parts that reward or punish length."""
RATIOS = {"entropy/of_start": "entropy", "completions/length_of_start": "completions/mean_length"}
"""Quantity → the metric that is divided by its mean over the first two steps."""
FORESEEN = ("settings/", "adapter/", "data/")
"""Beginnings of the names of quantities that are known before the first step."""
_OF_RECIPE = {
    "lora_dropout": "model.lora.lora_dropout",
    "critic_rate": "critic.learning_rate",
    **{name: f"trainer.{name}" for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    **{name: f"trainer.{name}" for name in ("learning_rate", "max_grad_norm", "adam_epsilon")},
}
"""Quantity below ``settings/`` → path of its value in the recipe."""


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
    def weights(self) -> dict[str, float]:
        """Label of each reward → its weight; without those whose weight is a schedule."""
        rewards = [{"name": x} if isinstance(x, str) else x for x in self["rewards"] or []]
        weights = {str(reward.get("as") or reward.get("name")): reward.get("weight", 1.0) for reward in rewards}
        return {label: float(weight) for label, weight in weights.items() if _is_number(weight)}

    @property
    def main_reward(self) -> str:
        """Label of the reward that is evaluated; else that of the largest weight."""
        weights = self.weights
        return str(self["evaluation.metric"] or max(weights, key=lambda label: abs(weights[label]), default=None))

    @property
    def kl_beta(self) -> float | None:
        """Coefficient of the penalty `kl`; None without it, or if it is a schedule."""
        penalties = [p for p in self["algorithm.penalties"] or [] if isinstance(p, Mapping)]
        betas = [penalty.get("beta") for penalty in penalties if penalty.get("name") in ("kl", "builtin/kl")]
        return betas[0] if betas and _is_number(betas[0]) else None

    @property
    def rewards_length(self) -> bool:
        """True if a reward or a shaper depends on the length of a completion, by its name."""
        parts = [*(self["rewards"] or []), *(self["algorithm.shapers"] or [])]
        names = [str(part.get("name")) if isinstance(part, Mapping) else str(part) for part in parts]
        return any(word in name for name in names for word in OF_LENGTH)

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


def steps_of(records: Sequence[Record], stage: str, settings: StageSettings) -> list[dict[str, Any]]:
    """Return the metrics of each optimizer step of a stage, oldest first, with the quantities of the rules.

    - `entropy/of_start`, `completions/length_of_start`: ratio to the mean of the first two steps
    - `reward/change`, `rewards/<label>/change`: difference from the mean of the first two steps
    - `main/mean`, `main/change`: those of the reward that is evaluated
    - `reward/of_maximum`: reward over the sum of the positive weights
    - `reward/of_parts`: standard deviation of the reward over the largest of its weighted parts
    - `reward/offset`: |mean| over the standard deviation of the reward
    - `policy_loss/clipped`: share of tokens clipped on either side, if any is
    - `policy/grad_norm`: that of the steps in which the policy is trained
    - `critic/gap`: |mean value − mean return| over the standard deviation of the advantages
    - those of :func:`of_settings`
    - `data/<name>`: facts of the data set, which are logged with the first step

    Args:
        records: Lines of ``metrics.jsonl``; those without a gradient norm are left out.
        stage: Name of the stage.
        settings: Settings of the stage.
    """
    steps = [dict(record) for record in records if record.get("stage") == stage and "grad_norm" in record]
    if not steps:
        return []
    changes = {name.removesuffix("mean") + "change": name for name in steps[0] if _is_mean_reward(name)}
    changes["reward/change"] = "reward"
    starts = {name: _mean_at_start(steps, name) for name in (*RATIOS.values(), *changes.values())}
    fixed = of_settings(settings) | {name: value for name, value in steps[0].items() if name.startswith("data/")}
    for step in steps:
        step |= fixed
        for quantity, source in RATIOS.items():
            if (start := starts[source]) and step.get(source) is not None:
                step[quantity] = step[source] / start
        for quantity, source in changes.items():
            if (start := starts[source]) is not None and step.get(source) is not None:
                step[quantity] = step[source] - start
        step |= _quantities(step, settings)
    return steps


def _is_mean_reward(name: str) -> bool:
    return name.startswith("rewards/") and name.endswith("/mean")


def _mean_at_start(steps: Sequence[Record], name: str) -> float | None:
    """Return the mean of a metric over the first two steps; None if it was not logged there."""
    values = [step[name] for step in steps[:2] if step.get(name) is not None]
    return sum(values) / len(values) if values else None


def _quantities(step: Record, settings: StageSettings) -> dict[str, float]:
    """Return the quantities of one step that follow from its metrics and the settings."""
    weights, added = settings.weights, {}
    for name in ("mean", "change"):
        if (value := step.get(f"rewards/{settings.main_reward}/{name}")) is not None:
            added[f"main/{name}"] = value
    reward, spread = step.get("reward"), step.get("reward_std")
    if reward is not None and (maximum := sum(max(weight, 0.0) for weight in weights.values())):
        added["reward/of_maximum"] = reward / maximum
    if reward is not None and spread:
        added["reward/offset"] = abs(reward) / spread
    parts = [abs(weight) * (step.get(f"rewards/{label}/std") or 0.0) for label, weight in weights.items()]
    if spread is not None and len(parts) > 1 and max(parts) > 0:
        added["reward/of_parts"] = spread / max(parts)
    return added | _of_losses(step, settings["critic.warmup_steps"] or 0)


def _of_losses(step: Record, critic_warmup: int) -> dict[str, float]:
    """Return the quantities of policy and critic; during its warm-up only the critic is trained."""
    added = {"policy/grad_norm": step["grad_norm"]} if step["step"] > critic_warmup else {}
    clipped = sum(step.get(f"policy_loss/clipped_{side}") or 0.0 for side in ("low", "high"))
    if clipped > 0:  # the first update on a batch clips nothing, and says nothing about the others
        added["policy_loss/clipped"] = clipped
    predicted, target, spread = (step.get(name) for name in ("critic/value", "critic/return", "advantage/std"))
    if predicted is not None and target is not None and spread:
        added["critic/gap"] = abs(predicted - target) / spread
    return added


def of_settings(settings: StageSettings) -> dict[str, float]:
    """Return the quantities that are known before the first step.

    - `adapter/learning_rate`, `adapter/displacement`: rate of an adapter; rate × steps, the most Adam moves a weight
    - `settings/warmup`: steps of warm-up over all steps
    - `settings/decay`: learning rate × weight decay, the share by which weights shrink in a step
    - `settings/total_weight`: sum of the sizes of the weights of all rewards
    - `settings/kl_beta`: coefficient of the penalty `kl`
    - `settings/main_weight`: weight of the reward that is evaluated
    - others below `settings/` (temperature, learning_rate, …): as in the recipe, where it has them
    """
    rate, steps = settings["trainer.learning_rate"], settings.max_steps
    decay, warmup = settings["trainer.weight_decay"], settings["trainer.warmup_steps"]
    values = {name: settings[path] for name, path in _OF_RECIPE.items()}
    weights = settings.weights
    values |= {"kl_beta": settings.kl_beta, "main_weight": weights.get(settings.main_reward)}
    values["total_weight"] = sum(map(abs, weights.values())) if weights else None
    values["decay"] = rate * decay if _is_number(rate) and _is_number(decay) else None
    values["warmup"] = warmup / steps if _is_number(warmup) and steps else None
    quantities = {f"settings/{name}": float(value) for name, value in values.items() if _is_number(value)}
    if settings["model.lora"] and _is_number(rate):
        quantities["adapter/learning_rate"] = rate
        if steps:
            quantities["adapter/displacement"] = rate * steps
    return quantities


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
