"""Metrics of each step of a stage, with quantities that compare the step with the start and with the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from rlm_plugins.diagnosis.settings import StageSettings

Record = Mapping[str, Any]
RATIOS = {"entropy/of_start": "entropy", "completions/length_of_start": "completions/mean_length"}
"""Quantity → the metric that is divided by its mean over the first two steps."""

_OF_TRAINER = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
    *("learning_rate", "max_grad_norm", "adam_epsilon"),
)


def steps_of(records: Sequence[Record], stage: str, settings: StageSettings) -> list[dict[str, Any]]:
    """Return the metrics of each optimizer step of a stage, oldest first, with the quantities of the rules.

    - `entropy/of_start`, `completions/length_of_start`: ratio to the mean of the first two steps
    - `rewards/<label>/change`: difference from the mean of the first two steps
    - `main/mean`, `main/change`: those of the reward that is evaluated
    - `reward/of_maximum`: reward over the sum of the positive weights
    - `policy_loss/clipped`: share of tokens clipped on either side, if any is
    - `policy/grad_norm`: that of the steps in which the policy is trained
    - `critic/gap`: |mean value − mean return| over the standard deviation of the advantages
    - `reward/change`: difference from the mean of the first two steps
    - `reward/of_parts`: standard deviation of the reward over the largest of its weighted parts
    - `reward/offset`: |mean| over the standard deviation of the reward
    - those of :func:`of_settings`, and those of the data set that the first step has

    Args:
        records: Lines of ``metrics.jsonl``; those without a gradient norm are left out.
        stage: Name of the stage.
        settings: Settings of the stage.
    """
    steps = [dict(record) for record in records if record.get("stage") == stage and "grad_norm" in record]
    starts = {source: _mean_at_start(steps, source) for source in RATIOS.values()}
    starts["reward"] = _mean_at_start(steps, "reward")
    rewards = [name for name in (steps[0] if steps else ()) if name.startswith("rewards/") and name.endswith("/mean")]
    starts |= {name: _mean_at_start(steps, name) for name in rewards}
    fixed = of_settings(settings) | of_data(steps)
    for step in steps:
        step |= fixed
        for quantity, source in RATIOS.items():
            if (start := starts[source]) and step.get(source) is not None:
                step[quantity] = step[source] / start
        for name in rewards:
            if (start := starts[name]) is not None and step.get(name) is not None:
                step[f"{name.removesuffix('mean')}change"] = step[name] - start
        if (start := starts["reward"]) is not None and step.get("reward") is not None:
            step["reward/change"] = step["reward"] - start
        step |= _quantities(step, settings)
    return steps


def _quantities(step: Record, settings: StageSettings) -> dict[str, Any]:
    """Return the quantities of one step that follow from its metrics and the settings."""
    added: dict[str, Any] = {}
    for name in ("mean", "change"):
        if (value := step.get(f"rewards/{settings.main_reward}/{name}")) is not None:
            added[f"main/{name}"] = value
    if step.get("reward") is not None and settings.maximum_reward:
        added["reward/of_maximum"] = step["reward"] / settings.maximum_reward
    if step.get("reward") is not None and step.get("reward_std"):
        added["reward/offset"] = abs(step["reward"]) / step["reward_std"]
    parts = [abs(weight) * (step.get(f"rewards/{label}/std") or 0.0) for label, weight in settings.weights.items()]
    if step.get("reward_std") is not None and len(parts) > 1 and max(parts) > 0:
        added["reward/of_parts"] = step["reward_std"] / max(parts)
    if step["step"] > (settings["critic.warmup_steps"] or 0):  # before, only the critic is trained
        added["policy/grad_norm"] = step["grad_norm"]
    sides = [step.get(f"policy_loss/clipped_{side}") for side in ("low", "high")]
    clipped = sum(side or 0.0 for side in sides)
    if clipped > 0:  # the first update on a batch clips nothing, and says nothing about the others
        added["policy_loss/clipped"] = clipped
    predicted, target, spread = (step.get(name) for name in ("critic/value", "critic/return", "advantage/std"))
    if predicted is not None and target is not None and spread:
        added["critic/gap"] = abs(predicted - target) / spread
    return added


def of_settings(settings: StageSettings) -> dict[str, float]:
    """Return the quantities that are known before the first step.

    - `adapter/learning_rate`, `adapter/displacement`: rate of an adapter; rate × steps, the most Adam moves a weight
    - `settings/temperature`, `settings/top_p`, `settings/top_k`: of the sampled completions, where the recipe has them
    - `settings/learning_rate`, `settings/max_grad_norm`, `settings/lora_dropout`: as in the recipe
    - `settings/warmup`: steps of warm-up over all steps
    - `settings/decay`: learning rate × weight decay, the share by which weights shrink in a step
    - `settings/adam_epsilon`, `settings/min_p`, `settings/repetition_penalty`, `settings/critic_rate`: as in the recipe
    - `settings/total_weight`: sum of the sizes of the weights of all rewards
    - `settings/kl_beta`: coefficient of the penalty `kl`
    - `settings/main_weight`: weight of the reward that is evaluated
    """
    names = {name: f"trainer.{name}" for name in _OF_TRAINER}
    names |= {"lora_dropout": "model.lora.lora_dropout", "critic_rate": "critic.learning_rate"}
    values = {name: settings[path] for name, path in names.items()}
    values |= {"kl_beta": settings.kl_beta, "main_weight": settings.main_weight}
    if weights := settings.weights:
        values["total_weight"] = sum(map(abs, weights.values()))
    rate, decay, warmup = (settings[f"trainer.{name}"] for name in ("learning_rate", "weight_decay", "warmup_steps"))
    if _is_number(rate) and _is_number(decay):
        values["decay"] = rate * decay
    if _is_number(warmup) and settings.max_steps:
        values["warmup"] = warmup / settings.max_steps
    quantities = {f"settings/{name}": float(value) for name, value in values.items() if _is_number(value)}
    if settings.has_lora and _is_number(rate):
        quantities["adapter/learning_rate"] = rate
        if settings.max_steps:
            quantities["adapter/displacement"] = rate * settings.max_steps
    return quantities


def of_data(steps: Sequence[Record]) -> dict[str, float]:
    """Return what was logged on the data set with the first step."""
    return {name: value for name, value in (steps[0] if steps else {}).items() if name.startswith("data/")}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean_at_start(steps: Sequence[Record], name: str) -> float | None:
    """Return the mean of a metric over the first two steps; None if it was not logged there."""
    values = [step[name] for step in steps[:2] if step.get(name) is not None]
    return sum(values) / len(values) if values else None
