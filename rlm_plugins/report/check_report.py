"""``rlm check``: everything a stage needs to run, without loading weights, as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe.checks.part_needs import reports_logprobs, unavailable_data, warnings_of
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import columns_of
from rlm_plugins.report import objective_text
from rlm_plugins.report.batch_plan import batch_lines
from rlm_plugins.report.part_text import about
from rlm_plugins.report.text_layout import report, short
from rlm_plugins.stage import Stage
from rlm_plugins.trainer import setup

Entry = dict[str, Any]

_HOOKS = {hook.key: name for name, hook in HOOKS.items()}
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


def examine(stage: Stage, registry: Registry) -> Entry:
    """Return everything that ``rlm check`` reports on a stage.

    Args:
        stage: Composed, with its environment built.
        registry: Supplies the origin of its parts.

    Returns:
        ``name``; ``model`` (origin and license); ``parts`` (slot, name, plugin, origin, file); ``data`` (name,
        needed_by, supplied_by); ``batch`` (lines of text); ``objective`` and ``legend`` (symbol, meaning, part);
        ``warnings`` (lines of text); what each section of a package reports under its key, and as lines of text under
        ``sections``.
    """
    args = setup.arguments(stage)
    parts = list(_parts(stage, registry))
    return {
        "name": stage.name,
        "model": str(stage.source.notice()) if stage.source.notice is not None else stage.source.origin,
        "parts": [_part(slot, part, registry) for slot, part in parts],
        "data": list(data_of_parts(stage, parts)),
        "batch": batch_lines(stage, args),
        **_objective(stage, dict(parts)["trainer"]),
        **_sections(stage, args),
        "warnings": [
            *(warnings_of(vars(stage.equation)) if stage.equation is not None else ()),
            *(line for section in stage.sections.values() for line in section.warnings(stage)),
        ],
    }


def _sections(stage: Stage, args: Any) -> Entry:
    """Return what the sections of packages report, by their keys, and as lines of text under ``sections``."""
    data: Entry = {}
    lines: dict[str, list[str]] = {}
    for key, section in stage.sections.items():
        data[key] = section.check_data(stage, args)
        lines[key] = list(section.check_lines(data[key]))
    return {**data, "sections": lines}


def _part(slot: str, part: Part, registry: Registry) -> Entry:
    origin = registry.plugins[part.plugin].origin
    return {"slot": slot, "name": part.name, "plugin": part.plugin, "origin": origin, "file": part.file}


def _objective(stage: Stage, trainer: Part) -> Entry:
    if stage.equation is None:
        return {"objective": f"that of its trainer: {about(trainer)}", "legend": []}
    rewards = " + ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards)
    slots = vars(stage.equation)
    legend = [*objective_text.legend(slots), ("r", rewards, "")]
    return {"objective": objective_text.objective(slots), "legend": legend}


def _parts(stage: Stage, registry: Registry) -> Iterator[tuple[str, Part]]:
    """Yield recipe key and part of everything that the stage uses, in batch order."""
    algorithm = registry.find("rlm_algorithms", stage.body["algorithm"]["name"])
    trainer = registry.find("rlm_trainers", algorithm.target.trainer)
    used = [algorithm, trainer, *(bound.part for bound in stage.parts())]
    for key in ("environment", "model"):
        if name := (stage.body.get(key) or {}).get("name"):
            used.append(registry.find(_HOOKS[key], name))
    for hook, info in HOOKS.items():
        yield from ((info.key, part) for part in used if part.hook == hook)


# ---- data


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


# ---- text


def render(stage: Entry) -> str:
    """Return an entry of :func:`examine` as text."""
    parts = ((p["slot"], p["name"], f"{p['plugin']} ({p['origin']})", short(p["file"])) for p in stage["parts"])
    data = ((d["name"], f"for {', '.join(d['needed_by'])}", f"from {d['supplied_by']}") for d in stage["data"])
    sections = {
        "model": stage["model"],
        "parts": parts,
        "data": data,
        "batch": "\n".join(stage["batch"]),
        "objective": objective_text.with_legend(stage["objective"], stage["legend"]),
        **{key: "\n".join(lines) for key, lines in stage["sections"].items()},
        "warnings": "\n".join(stage["warnings"]),
    }
    return report(stage["name"], sections)
