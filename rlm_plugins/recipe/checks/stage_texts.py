"""Checks of the examples of a stage: their content, and their lengths by the tokenizer of the model."""

from __future__ import annotations

from typing import Any

from rlm_plugins.recipe.checks.examples import check_content
from rlm_plugins.recipe.paths import format_path
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.registry.protocols import columns_of
from rlm_plugins.rollout.group_layout import columns_read
from rlm_plugins.specs import EnvironmentSpec, ModelSpec


def check_stage_texts(plan: Plan, environment_spec: EnvironmentSpec, source: ModelSpec, config: Any) -> None:
    """Check the content of all examples, and their lengths by the tokenizer of the model."""
    from rlm_plugins.data.text_lengths import check_texts, positions_of, warn_of_long_texts

    where, name = format_path((*plan.stage_path, "environment")), plan.body["environment"]["name"]
    generated = isinstance(environment_spec.train, list | tuple)
    check_content(environment_spec, plan.rewards, name, where, generated=generated)
    try:
        tokenizer = source.tokenizer()
    except Exception:  # loading the model reports it, with its reason
        return
    positions = positions_of(source.config)
    completion = None if environment_spec.multi_turn else getattr(config, "max_completion_length", None)
    settings = plan.body["trainer"]
    explicit, template = "max_completion_length" in settings, settings.get("chat_template_kwargs")
    limits: dict[str, Any] = {"explicit": explicit, "template": template}
    check_texts(tokenizer, environment_spec.train, positions, completion, where, **limits)
    check_texts(tokenizer, environment_spec.test, positions, completion, where, **limits, kind="held-out")
    warn_of_long_texts(tokenizer, environment_spec.train, _trained_columns(plan, completion, config), where)


def _trained_columns(plan: Plan, completion: int | None, config: Any) -> dict[str, int]:
    """Return the columns whose text the policy is trained to generate, each with its maximum length in tokens."""
    used = {*columns_of(plan.trainer.target), *columns_read(plan.slots["rollouts"])}
    longest = completion or getattr(config, "max_length", None)
    limits: dict[str, int | None] = dict.fromkeys(sorted(used & {"demonstration", "completion"}), longest)
    rewards = [reward.part.part for reward in plan.rewards]
    if any(part.name.endswith("accuracy") and "answer" in part.required_data for part in rewards):
        limits["answer"] = completion
    return {name: limit for name, limit in limits.items() if limit}
