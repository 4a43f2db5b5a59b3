"""Checks of the parts of an algorithm: the data, names and settings that they require."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from rlm_plugins.equation.knobs import NameOf, Schedule
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.paths import Path, format_path, prefixed_address
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import ValidatesConfig, Warns, granularity_of, needs_equation
from rlm_plugins.rollout.group_layout import assign_sources, labels

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


def check_symbols(slots: Mapping[str, Any], num_rewards: int, stage_path: Path, registry: Registry) -> None:
    """Check that the equation has its three required symbols, and that there are rewards."""
    for slot in ("advantage", "policy_loss", "aggregator"):
        if slots[slot] is None:
            where, allowed = format_path((*stage_path, "algorithm", slot)), ", ".join(registry.names(HOOK_OF[slot]))
            raise RecipeError(f"the algorithm has no {slot}", where=where, allowed=allowed)
    if not num_rewards and any(name in REWARDS for _, bound, _ in iter_parts(slots, "") for name in bound.part.data):
        where, allowed = format_path((*stage_path, "rewards")), ", ".join(registry.names("rlm_rewards"))
        raise RecipeError("this algorithm requires rewards", where=where, allowed=allowed)


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


def check_reward_names(parts: Iterable[tuple[Bound, str]], labels: Sequence[str]) -> None:
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


def check_sources(slots: Mapping[str, Any], stage_path: Path) -> None:
    """Check that labels of sources are unique, and that every source that a term or a knob names exists."""
    where = format_path((*stage_path, "algorithm"))
    valid = labels(slots["rollouts"], f"{where}.rollouts")
    for _, term, address in iter_parts(slots, where):
        option = [(".source", term.options["source"])] if "source" in term.options else []
        for suffix, source in (*option, *names_in(term, "source")):
            if source not in valid:
                raise RecipeError(
                    f"unknown source '{source}' in `{term.part.name}`",
                    where=address + suffix,
                    allowed=", ".join(valid),
                    hint=nearest(source, valid) or f"add it to `rollouts`: `[{{name: {source}, num_completions: 1}}]`",
                )


def check_rows_fit(slots: Mapping[str, Any], config: Any, stage_path: Path) -> None:
    """Check that the sources fit into a group of the completions that the trainer generates."""
    where = format_path((*stage_path, "algorithm", "rollouts"))
    if slots["rollouts"] and not hasattr(config, "num_generations"):
        raise RecipeError("this trainer generates no completions", where=where, hint="leave `rollouts` out")
    if slots["rollouts"]:
        assign_sources(slots["rollouts"], config.num_generations, where)


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


def check_config_rules(slots: Mapping[str, Any], config: Any, where: str) -> None:
    """Call `validate(config, **knobs)` of every part that has it; a schedule is checked at both ends."""
    for _, bound, address in iter_parts(slots, where):
        target: Any = bound.target
        for end in ("start", "end") if isinstance(target, ValidatesConfig) else ():
            knobs = {name: getattr(x, end) if isinstance(x, Schedule) else x for name, x in bound.knobs.items()}
            with prefixed_address(address):
                target.validate(config, **knobs)
