"""Checks of the parts of an algorithm: the data, names, settings and group size that they require."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.knobs import NameOf, Schedule
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.paths import prefixed_address
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import ValidatesConfig, Warns, granularity_of, needs_equation
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label, labels

if TYPE_CHECKING:
    from rlm_plugins.recipe.resolve import Plan

REWARDS = ("rewards", "named_rewards", "token_rewards", "turn_rewards", "dense_rewards", "rewards_of")
"""Data of the batch that exists only with rewards."""
TEACHER = ("teacher_logp", "has_teacher", "teacher_top_ids", "teacher_top_logp", "top_logp", "divergence_of")
"""Data of the batch that a section `teacher` provides, some of it by its key `top`."""
_NO_RATIO = "comes from an importance part, which this algorithm lacks"
_NO_ENGINE = "comes from the inference engine, and transformers reports none"


def unavailable_data(
    slot: str, *, has_importance: bool, has_shapers: bool, provided: Collection[str]
) -> dict[str, str]:
    """Return the fields of the batch that a part in `slot` cannot have, each with the reason.

    `provided` are the data that sections, settings, vLLM or a rollout source provide.
    """
    missing: dict[str, str] = {}
    if not has_importance or slot == "importance":
        missing |= dict.fromkeys(("ratio", "log_ratio"), f"the ratio {_NO_RATIO}")
    if not has_shapers:
        missing["dense_rewards"] = "shapers add it per token, and there are none"
    if "rollout_logp" not in provided:
        missing |= {name: f"{name} {_NO_ENGINE}" for name in ("rollout_logp", "rollout_weight")}
    missing |= {name: f"{name} comes from a teacher, and none gives it" for name in TEACHER if name not in provided}
    if slot != "aggregator":
        missing["loss"] = "only an aggregator gets the loss per token"
    return missing


def provided_data(owners: Iterable[Any], settings: Mapping[str, Any], rollouts: Any) -> set[str]:
    """Return the data of the batch that settings and sections (with `provides`), vLLM and rollout sources provide."""
    provided = {name for owner in owners for name in owner.provides}
    return provided | ({"rollout_logp"} if rollouts or settings.get("use_vllm") else set())


_REMEDIES = dict.fromkeys(TEACHER, "add the section `teacher: {model: …}`; it is in rlm-algorithms") | {
    **dict.fromkeys(("teacher_top_ids", "teacher_top_logp", "top_logp"), "set `teacher: {top: 32}`"),
    "divergence_of": "set `teacher: {top: all}`",
    "ratio": "add `importance: token`, or choose a part that needs no ratio",
    "log_ratio": "add `importance: token`, or choose a part that needs no ratio",
    "dense_rewards": "add a shaper with a reward per token or step",
    "rollout_logp": "set `trainer: {use_vllm: true}` or, with rlm-engines, `{stale: 1}`, or choose a rollouts part",
    "rollout_weight": "set `trainer: {use_vllm: true}`, or choose a rollouts part",
}


def check_needs(slots: Mapping[str, Any], where: str, *, provided: Collection[str]) -> None:
    """Check that all data that the parts of an algorithm require are provided."""
    has = {"has_importance": slots.get("importance") is not None, "has_shapers": bool(slots.get("shapers"))}
    for slot, bound, address in iter_parts(slots, where):
        missing = unavailable_data(slot, **has, provided=provided)
        for name in (name for name in (*bound.part.required_data, *bound.part.update_required_data) if name in missing):
            problem = f"`{bound.part.name}` requires `{name}`: {missing[name]}"
            raise RecipeError(problem, where=address, hint=_REMEDIES.get(name, ""))


def iter_parts(slots: Mapping[str, Any], where: str) -> Iterator[tuple[str, Bound, str]]:
    """Yield slot, part and address of every part of an algorithm."""
    for slot, choice in slots.items():
        if isinstance(choice, list):
            yield from ((slot, bound, f"{where}.{slot}[{i}]") for i, bound in enumerate(choice))
        elif choice is not None:
            yield slot, choice, f"{where}.{slot}"


def check_unused_slots(algorithm: Part, trainer: Part, merged: Mapping[str, Any], where: str) -> None:
    """Check that a trainer with a loss of its own, and an algorithm without parts, gets no parts of the equation."""
    if needs_equation(trainer.target) or any(algorithm.target.slots().values()):
        return
    for slot in (slot for slot, spec in merged.items() if spec and slot != "rollouts"):
        problem = f"the trainer '{trainer.name}' has a loss of its own, and takes no `{slot}`"
        raise RecipeError(
            problem, where=f"{where}.{slot}", hint=f"leave it out, or choose another algorithm than {algorithm.name}"
        )


def check_plan(plan: Plan, registry: Registry) -> None:
    """Check the names in the parts of a resolved stage, and that its equation is complete; a message suggests parts."""
    where, parts = plan.address("algorithm"), list(iter_parts(plan.slots, plan.address("algorithm")))
    _check_sources(plan, parts)
    if plan.has_symbols or needs_equation(plan.stage.trainer):
        for slot in ("advantage", "policy_loss", "aggregator"):
            if plan.slots[slot] is None:
                allowed = ", ".join(registry.names(HOOK_OF[slot]))
                raise RecipeError(f"the algorithm has no {slot}", where=f"{where}.{slot}", allowed=allowed)
        if not plan.stage.rewards and any(name in REWARDS for _, bound, _ in parts for name in bound.part.data):
            allowed = ", ".join(registry.names("rlm_rewards"))
            raise RecipeError("this algorithm requires rewards", where=plan.address("rewards"), allowed=allowed)
        _check_refills(plan.slots["filters"], f"{where}.filters")
    callbacks = ((part, plan.address("callbacks", i)) for i, part in enumerate(plan.stage.extensions.callbacks))
    named = [*((bound, address) for _, bound, address in parts), *callbacks]
    _check_reward_names(named, [reward.label for reward in plan.stage.rewards])


def names_in(bound: Bound, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the names that the knobs of a part hold by their annotation :class:`~rlm_plugins.equation.knobs.NameOf`.

    The kind is ``reward`` or ``source``; each name comes after its address inside the part (``.of[1]``).
    """
    for knob, field in bound.part.knobs.model_fields.items():
        yield from _names(field.rebuild_annotation(), bound.knobs[knob], NameOf(kind), f".{knob}")


def _names(hint: Any, value: Any, name_of: NameOf, where: str) -> Iterator[tuple[str, str]]:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated and name_of in arguments[1:]:
        if isinstance(value, str):
            yield where, value
    elif get_origin(hint) is Annotated:
        yield from _names(arguments[0], value, name_of, where)
    elif get_origin(hint) in (Union, UnionType):
        for member in arguments:
            yield from _names(member, value, name_of, where)
    elif isinstance(value, Mapping) and len(arguments) == 2:
        for key, entry in value.items():
            yield from _names(arguments[0], key, name_of, f"{where}.{key}")
            yield from _names(arguments[1], entry, name_of, f"{where}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str) and arguments:
        for number, entry in enumerate(value):
            yield from _names(arguments[0], entry, name_of, f"{where}[{number}]")


def _check_reward_names(parts: Iterable[tuple[Bound, str]], labels: Sequence[str]) -> None:
    """Check that every reward that a knob of `parts` (with their addresses) names exists."""
    for bound, address in parts:
        for suffix, name in names_in(bound, "reward"):
            if name not in labels:
                raise RecipeError(
                    f"unknown reward '{name}' in `{bound.part.name}`",
                    where=address + suffix,
                    allowed=", ".join(labels) or "nothing: there are no rewards",
                    hint=nearest(name, labels) or "the name of a reward, or its label `as: …`",
                )


def _check_sources(plan: Plan, parts: Iterable[tuple[str, Bound, str]]) -> None:
    """Check that labels of sources are unique, and that every source that a term or a knob names exists."""
    valid = labels(plan.slots["rollouts"], plan.address("algorithm", "rollouts"))
    for _, term, address in parts:
        option = [(".source", term.options["source"])] if "source" in term.options else []
        for suffix, source in (*option, *names_in(term, "source")):
            if source not in valid:
                raise RecipeError(
                    f"unknown source '{source}' in `{term.part.name}`",
                    where=address + suffix,
                    allowed=", ".join(valid),
                    hint=nearest(source, valid) or f"add it to `rollouts`: `[{{name: {source}, num_completions: 1}}]`",
                )


def check_with_config(plan: Plan, config: Any, registry: Registry) -> None:
    """Check the parts of a stage against the trainer's config: group size, and their `validate(config, **knobs)`."""
    where, sources = plan.address("algorithm"), plan.slots["rollouts"]
    if sources and not hasattr(config, "num_generations"):
        hint = "leave `rollouts` out"
        raise RecipeError("this trainer generates no completions", where=f"{where}.rollouts", hint=hint)
    if sources:
        assign_sources(sources, config.num_generations, f"{where}.rollouts")
    for _, bound, address in iter_parts(plan.slots, where):
        target: Any = bound.target
        for end in ("start", "end") if isinstance(target, ValidatesConfig) else ():  # both ends of a schedule
            knobs = {name: getattr(x, end) if isinstance(x, Schedule) else x for name, x in bound.knobs.items()}
            with prefixed_address(address):
                target.validate(config, **knobs)
    if hasattr(config, "num_generations") and plan.has_symbols:
        _check_groups(plan, config.num_generations, registry)


def warnings_of(slots: Mapping[str, Any], trainer: Mapping[str, Any]) -> list[str]:
    """Return warnings about valid combinations of parts, and of parts and settings, that are rarely intended."""
    warnings = []
    for slot, bound, _ in iter_parts(slots, ""):
        target: Any = bound.target
        if isinstance(target, Warns) and (warning := target.warn(trainer, **bound.knobs)):
            warnings.append(f"`{bound.part.name}` ({slot}): {warning}")
    ratio, aggregator = slots.get("importance"), slots.get("aggregator")
    granularity = [granularity_of(part.target) if part is not None else "" for part in (ratio, aggregator)]
    if ratio is not None and aggregator is not None and granularity == ["sequence", "token"]:
        warnings.append(
            f"the ratio `{ratio.part.name}` is one per completion, and `{aggregator.part.name}` weights each sequence "
            "by its completion length: the gradient is not that of the per-sequence objective "
            "(`aggregator: sequence_mean`)"
        )
    return warnings


TOO_SMALL = {
    "advantage": "`{0}` compares the completions of a group: in groups of {1} it is 0 whatever the rewards are",
    "filters": "`{0}` keeps no completion of a group of {1}, whatever the rewards are",
}
"""Slot → the problem of a part that gives no signal for such small groups."""


def _check_groups(plan: Plan, size: int, registry: Registry) -> None:
    """Check that advantages and filters give a signal for groups of `size`; the error suggests other parts."""
    rewards, sources = [reward.label for reward in plan.stage.rewards], plan.slots["rollouts"]
    for slot, bound, address in iter_parts(plan.slots, plan.address("algorithm")):
        is_checked = slot in TOO_SMALL and (slot != "advantage" or "advantages" in plan.slots["policy_loss"].part.data)
        if is_checked and (minimum := min_group_size(bound, size, rewards, sources)):
            alternatives = _alternatives(size, rewards, sources, registry) if slot == "advantage" else ""
            raise RecipeError(
                f"{TOO_SMALL[slot].format(bound.part.name, size)}, so nothing would be trained",
                where=address,
                allowed=f"`trainer.num_generations` of {minimum} or more",
                hint=f"an advantage for groups of {size}: {alternatives}" if alternatives else "",
            )


def _alternatives(size: int, rewards: Sequence[str], sources: Sequence[Bound], registry: Registry) -> str:
    """Return the advantages that give a signal for groups of `size`, with their default knobs."""
    parts = registry.parts_of("rlm_advantages")
    parts = [part for part in parts if not any(x.is_required() for x in part.knobs.model_fields.values())]
    return ", ".join(part.name for part in parts if has_signal(part.bind({}), size, rewards, sources))


def _check_refills(filters: Sequence[Bound], where: str) -> None:
    """Check that filters that refill agree on the number of sampling rounds."""
    rounds = [(bound.part.name, bound.options["refill"]) for bound in filters if bound.options.get("refill")]
    if len({most for _, most in rounds}) > 1:
        refills = " and ".join(f"`{name}` has `refill: {most}`" for name, most in rounds)
        hint = "set the same `refill` in each: sampling ends when all of them keep something, or at the bound"
        raise RecipeError(f"expected one bound for the whole batch, but {refills}", where=where, hint=hint)


LARGE = 64
"""Group size in which every part gives a signal, if any does."""


def min_group_size(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> int:
    """Return the smallest group size for which a part gives a signal, if `size` gives none; otherwise 0.

    The signal of an advantage is a value other than 0, that of a filter a kept completion.
    """
    if size >= LARGE or has_signal(part, size, rewards, sources) or not has_signal(part, LARGE, rewards, sources):
        return 0
    return next(larger for larger in range(size + 1, LARGE + 1) if has_signal(part, larger, rewards, sources))


def has_signal(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> bool:
    """Return True if a part returns a nonzero value (or True) for groups of `size`; a part that fails does not."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in _batches(size, rewards, sources):
            with suppress(Exception):
                stateless = replace(part, target=copy.deepcopy(part.target))  # the state of the part must not change
                output: Any = stateless(batch)
                output = output[0] if isinstance(output, tuple) else output
                if bool((output.nan_to_num() != 0).any()):
                    return True
    return False


def _batches(size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Iterator[Batch]:
    """Yield groups with every number of correct completions, with rewards 0 and 1, and with distinct rewards."""
    correct = (torch.arange(size) < torch.arange(size + 1).unsqueeze(1)).flatten().float()
    for scores in (correct, correct + torch.rand(len(correct), generator=torch.Generator().manual_seed(0))):
        yield _rows(scores, size, rewards, sources)


def _rows(scores: torch.Tensor, size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Batch:
    """Return a batch of one to three tokens per completion, with all data of the scoring phase."""
    from rlm_plugins.equation.dispatch import on_last_token

    count = len(scores)
    group = torch.arange(count) // size
    mask = torch.arange(3) <= (torch.arange(count) % 3).unsqueeze(1)
    numbers = torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
    names = [POLICY, *map(label, sources)]
    source_labels = [names[number] for number in assign_sources(sources, size)] * (count // size)
    return Batch(
        group=group,
        mask=mask,
        truncated=torch.zeros(count, dtype=torch.bool),
        prompt_index=group.clone(),
        sources={name: torch.tensor([*map(name.__eq__, source_labels)]) for name in labels(sources)},
        max_completion_length=4,
        step=0,
        completion_ids=[[row] * (1 + row % 3) for row in range(count)],
        rewards=scores,
        named_rewards={name: scores.clone() for name in rewards},
        token_rewards=on_last_token(scores, mask),
        dense_rewards=torch.zeros(count, 3),
        old_logp=-numbers,
        ref_logp=-numbers / 2,
        rollout_logp=-numbers,
        policy_drift=torch.zeros(count),
        entropy=numbers,
        self_certainty=numbers,
        top2_margin=numbers,
        sum_pi_squared=numbers,
        values=numbers,
    )
