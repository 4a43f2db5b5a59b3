"""``rlm check``: everything a stage needs to run, as plain data; :mod:`rlm_plugins.cli.check_report` tells it.

No weight is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rlm_plugins.cli import objective_text as formula
from rlm_plugins.cli.batch_plan import schedule
from rlm_plugins.cli.rollouts_report import refills, writers
from rlm_plugins.cli.speed_report import fast_path_lines, generation_lines
from rlm_plugins.errors import RlmError
from rlm_plugins.estimate.plan import Forecast
from rlm_plugins.estimate.workload import machine_memory
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe.checks.data_needs import unsupplied
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import columns_of
from rlm_plugins.run import trainer_setup as engine
from rlm_plugins.stage import Stage

Entry = dict[str, Any]

SUPPLIERS = {
    "prompts": "the data set",
    "inputs": "the data set",
    "rewards": "the rewards, weighted, summed and shaped",
    "named_rewards": "the rewards",
    "token_rewards": "the rewards, spread over tokens by shapers",
    "turn_rewards": "the environment, turn by turn",
    "dense_rewards": "the shapers that work token by token",
    "logprobs_of": "the policy, now, on what the part asks about",
    "generate": "the policy, which writes on from where the part says",
    "rewards_of": "the rewards, on what the part asks about",
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
    "ref_logp": "the frozen reference, by one more pass over every generation",
    "rollout_logp": "the engine that samples",
    "rollout_weight": "the engine that samples",
    "values": "the critic",
    "old_values": "the critic, before the update",
    "sources": "the rollout sources, and the policy",
    "policy_drift": "the policy, now, over its last answers",
    "prompt_index": "the desk, which hands out the problems of each generation",
    "step_batch": "the policy, now, by one more pass over all micro-batches of a step where there are several",
}
"""Who fills a field of the batch; what is not here comes from the trainer."""
_HOOKS = {hook.key: name for name, hook in HOOKS.items()}


def examine(stage: Stage, registry: Registry) -> Entry:
    """A stage, looked at from all sides.

    Args:
        stage: Composed, with its world built.
        registry: Where its parts were found.

    Returns:
        ``name``; ``parts`` (slot, name, plugin, origin, file); ``data`` (name, needed_by, supplied_by); ``batch``
        (lines of text); ``objective`` and ``legend`` (symbol, meaning, part); ``speed`` (lines of text); ``memory``
        (see `memory`).
    """
    forecast = engine.forecast(stage)
    args = forecast.args
    problems = len(stage.environment_spec.train) if hasattr(stage.environment_spec.train, "__len__") else None
    parts = list(_parts(stage, registry))
    return {
        "name": stage.name,
        "parts": [_part(slot, part, registry) for slot, part in parts],
        "data": list(_data(stage, parts)),
        "batch": [*schedule(args, problems, stage.settings).words(), *_written(stage, args)],
        **_objective(stage, dict(parts)["trainer"]),
        "speed": [*generation_lines(stage, args), *fast_path_lines(stage, args)],
        "memory": memory(forecast),
    }


def _written(stage: Stage, args: Any) -> list[str]:
    """Who writes the rows, and how often a batch is drawn."""
    if stage.equation is None or not hasattr(args, "num_generations"):
        return []
    drawn = refills(stage.equation.filters, args.generation_batch_size)
    return [*writers(stage.rollouts, args.num_generations), *drawn]


def memory(forecast: Forecast) -> Entry:
    """The estimate in bytes, the load it is for, and what this machine has; ``problem`` where none can be made."""
    try:
        load, found = forecast.load, forecast.memory
    except RlmError:
        raise
    except Exception as error:  # no condition for a run: a model may be of a kind this has never heard of
        return {"problem": f"no estimate for this model: {type(error).__name__}: {error}"}
    told = {"decided": forecast.decided(), "machine": machine_memory()}
    return {**asdict(found), "peak": found.peak, "load": asdict(load), **told}


def _part(slot: str, part: Part, registry: Registry) -> Entry:
    origin = registry.plugins[part.plugin].origin
    return {"slot": slot, "name": part.name, "plugin": part.plugin, "origin": origin, "file": part.file}


def _objective(stage: Stage, engine_part: Part) -> Entry:
    if stage.equation is None:
        return {"objective": f"that of its engine: {formula.summary(engine_part.target)}", "legend": []}
    rewards = " + ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards)
    slots = vars(stage.equation)
    return {"objective": formula.objective(slots), "legend": [*formula.legend(slots), ("r", rewards, "")]}


def _parts(stage: Stage, registry: Registry) -> Iterator[tuple[str, Part]]:
    """Recipe key and part of everything that is chosen, in batch order."""
    row = registry.find("rlm_algorithms", stage.body["algorithm"]["name"])
    chosen = [row, registry.find("rlm_trainers", row.target.trainer), *(bound.part for bound in stage.parts())]
    for key in ("environment", "model"):
        if name := (stage.body.get(key) or {}).get("name"):
            chosen.append(registry.find(_HOOKS[key], name))
    for hook, seam in HOOKS.items():
        yield from ((seam.key, part) for part in chosen if part.hook == hook)


def _data(stage: Stage, parts: Sequence[tuple[str, Part]]) -> Iterator[Entry]:
    """What the parts that see data name, who names it, and where it comes from."""
    column = f"column of {stage.body['environment']['name']}"
    needed: dict[tuple[str, str], list[str]] = {}
    for slot, part in parts:
        for name in _named(stage, slot, part):
            is_column = slot == "trainer" or (slot == "rewards" and name not in part.sample)
            supplier = column if is_column else SUPPLIERS.get(name, "the trainer")
            needed.setdefault((name, supplier), []).append(part.name)
    for (name, supplier), users in needed.items():
        yield {"name": name, "needed_by": list(dict.fromkeys(users)), "supplied_by": supplier}


def _named(stage: Stage, slot: str, part: Part) -> list[str]:
    """The data a part is given here."""
    if slot == "trainer":
        return list(columns_of(part.target))
    if slot == "rewards":
        return [*part.needs, *part.welcomes]
    learns_from = [*part.update_needs, *part.update_welcomes]
    if stage.equation is None or slot not in vars(stage.equation):
        return learns_from
    elsewhere = bool(stage.rollouts) or bool(stage.settings.get("use_vllm"))
    there = {"has_importance": stage.equation.importance is not None, "has_shapers": bool(stage.equation.shapers)}
    missing = unsupplied(slot, **there, samples_elsewhere=elsewhere)
    names = (*part.needs, *part.welcomes, *learns_from)
    return [name for name in names if name not in missing and name != "log"]
