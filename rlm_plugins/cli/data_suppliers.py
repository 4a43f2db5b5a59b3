"""Data that the parts of a stage name, with their suppliers: a section of ``rlm check``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlm_plugins.recipe.checks.part_needs import reports_logprobs, unavailable_data
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import columns_of
from rlm_plugins.stage import Stage

SUPPLIERS = {
    "prompts": "the data set",
    "inputs": "the data set",
    "rewards": "the rewards, weighted, summed and shaped",
    "named_rewards": "the rewards",
    "token_rewards": "the rewards, spread over tokens by shapers",
    "turn_rewards": "the environment, turn by turn",
    "dense_rewards": "the shapers with per-token rewards",
    "logprobs_of": "a forward pass of the policy over sequences that the part supplies",
    "generate": "the policy, from prompts and prefixes that the part supplies",
    "rewards_of": "the rewards, on completions that the part supplies",
    "advantages": "the advantage part",
    "returns": "the advantage part",
    "log_ratio": "the importance part",
    "ratio": "the importance part",
    "loss": "policy loss, token weights and penalties",
    "logp": "the policy, now",
    "entropy": "the policy, now",
    "old_logp": "the policy, before the update",
    "self_certainty": "the policy, before the update, from all its logits",
    "top2_margin": "the policy, before the update, from all its logits",
    "expected_logp": "the policy, before the update, over whole groups",
    "ref_logp": "the frozen reference, by one more forward pass over each generation batch",
    "rollout_logp": "the inference engine",
    "rollout_weight": "the inference engine",
    "values": "the critic",
    "old_values": "the critic, before the update",
    "sources": "the rollout sources, and the policy",
    "policy_drift": "the policy, now, on its last completion of each prompt",
    "prompt_index": "the prompt source",
    "step_batch": "the policy, by one more forward pass over the micro-batches of a step (if it has several)",
}
"""Field of the batch → its supplier; all other fields come from the trainer."""


def data_of_parts(stage: Stage, parts: Sequence[tuple[str, Part]]) -> Iterator[dict[str, Any]]:
    """Yield the data that the parts name, with the parts and the supplier of each."""
    column = f"column of {stage.body['environment']['name']}"
    users_of: dict[tuple[str, str], list[str]] = {}
    for slot, part in parts:
        for name in _data_names(stage, slot, part):
            is_column = slot == "trainer" or (slot == "rewards" and name not in part.sample)
            supplier = column if is_column else SUPPLIERS.get(name, "the trainer")
            users_of.setdefault((name, supplier), []).append(part.name)
    for (name, supplier), part_names in users_of.items():
        yield {"name": name, "needed_by": list(dict.fromkeys(part_names)), "supplied_by": supplier}


def _data_names(stage: Stage, slot: str, part: Part) -> list[str]:
    """Return the data that a part is given in this stage."""
    if slot == "trainer":
        return list(columns_of(part.target))
    if slot == "rewards":
        return list(part.data)
    for_update = list(part.update_data)
    if stage.equation is None or slot not in vars(stage.equation):
        return for_update
    unavailable = unavailable_data(
        slot,
        has_importance=stage.equation.importance is not None,
        has_shapers=bool(stage.equation.shapers),
        samples_elsewhere=reports_logprobs(stage.settings, stage.rollouts),
    )
    names = (*part.data, *for_update)
    return [name for name in names if name not in unavailable and name != "log"]
