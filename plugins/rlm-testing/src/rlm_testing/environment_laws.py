"""Laws of environments, samplers, models and algorithms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.environment import Environment, has_step
from rlm_plugins.hooks import HOOKS
from rlm_plugins.rollout.tools import tools_of
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_testing.batch_transforms import copied
from rlm_testing.env_actions import play, text_actions, tool_actions
from rlm_testing.law import Draw, law
from rlm_testing.part_under_test import LawBroken, Subject, failure, stateful, through_checkpoint
from rlm_testing.strategies import batches

MAX_EXAMPLES = 200
"""Examples of a data set that are checked."""


def build(subject: Subject, *data: Any) -> Any:
    """Return the result of a new instance of the part.

    Raises:
        LawBroken: It raised.
    """
    try:
        return subject.fresh().call(dict(zip(subject.part.required_data, data, strict=False)))
    except Exception as error:
        raise LawBroken(failure(error)) from error


def _examples(data_set: Any) -> list[Any]:
    return list(islice(iter(data_set), MAX_EXAMPLES))


def _prompt(example: Mapping[str, Any]) -> str:
    return json.dumps(example["prompt"], sort_keys=True, default=str)


@law("rlm_environments")
def environment_spec(subject: Subject, draw: Draw) -> None:
    """Check that it builds an EnvironmentSpec whose examples have a prompt: text, or messages with role and content."""
    spec = build(subject)
    if not isinstance(spec, EnvironmentSpec):
        raise LawBroken(f"it returned {type(spec).__name__}")
    if not _examples(spec.train):
        raise LawBroken("it has no training examples")
    for example in [*_examples(spec.train), *_examples(spec.test)]:
        prompt = example.get("prompt") if isinstance(example, Mapping) else None
        chat = isinstance(prompt, list) and prompt and all({"role", "content"} <= {*message} for message in prompt)
        if not (isinstance(prompt, str) or chat):
            raise LawBroken(f"an example has no prompt: {example!r}")


@law("rlm_environments")
def held_out(subject: Subject, draw: Draw) -> None:
    """Check that no prompt of the test set is in the training set."""
    spec = build(subject)
    test_prompts = {_prompt(example) for example in spec.test}
    shared = next((example for example in spec.train if _prompt(example) in test_prompts), None)
    if shared is not None:
        raise LawBroken(f"both contain {shared!r}")


@law("rlm_environments")
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that it builds the same examples every time."""
    first, second = build(subject), build(subject)
    if _examples(first.train) != _examples(second.train) or _examples(first.test) != _examples(second.test):
        raise LawBroken("the examples differ the second time: sample them from a generator with a fixed seed")


@law("rlm_environments")
def episode(subject: Subject, draw: Draw) -> None:
    """Check that an episode depends on its example and the actions alone, and that no action makes it fail."""
    spec = build(subject)
    if not spec.multi_turn:
        return
    example = dict(draw(st.sampled_from(_examples(spec.train)[:8])))
    first, second = (spec.environment() if spec.environment else Environment() for _ in range(2))
    actions = draw(text_actions() if has_step(first) else tool_actions([*spec.tools, *tools_of(first)]))
    results = []
    for environment in (first, second):
        try:
            results.append(play(environment, example, actions, spec.tools))
        except Exception as error:
            raise LawBroken(failure(error), {"example": example, "actions": actions}) from error
    if results[0] != results[1]:
        raise LawBroken(
            f"{results[0]} the first time, {results[1]} the second", {"example": example, "actions": actions}
        )


def _called_per_generation(subject: Subject) -> bool:
    return subject.names("count")


@law("rlm_samplers", applies=_called_per_generation)
def choice(subject: Subject, draw: Draw) -> None:
    """Check that it returns `count` different, valid indices, as a function of draw, seed and state."""
    size = draw(st.integers(1, 40))
    arguments = {
        "size": size,
        "count": draw(st.integers(1, size)),
        "draw": draw(st.integers(0, 3)),
        "seed": draw(st.integers(0, 99)),
    }
    data = {name: arguments[name] for name in subject.part.data}
    old, new = subject.fresh(), subject.fresh()
    batch = draw(batches())
    for part in (old, new):
        part.update(copied(batch))
    selected = list(old.call(data))
    if not len(set(selected)) == len(selected) == arguments["count"] or not set(selected) <= set(range(size)):
        raise LawBroken(f"it returned {selected!r}", arguments)
    if isinstance(subject.part.target, type):
        new = subject.fresh()
        stateful(new).load_state_dict(through_checkpoint(stateful(old).state_dict()))
    resumed = list(new.call(data))
    if selected != resumed:
        raise LawBroken(f"{selected} the first time, {resumed} from the state of a checkpoint", arguments)


@law("rlm_samplers", applies=lambda s: not _called_per_generation(s))
def indices(subject: Subject, draw: Draw) -> None:
    """Check that it returns at most `size` valid indices, as a function of epoch and seed."""
    arguments = {"size": draw(st.integers(1, 40)), "epoch": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 99))}
    data = [arguments[name] for name in subject.part.required_data]
    order = build(subject, *data)
    if not all(isinstance(i, int) for i in order) or len(order) > arguments["size"]:
        raise LawBroken(f"it returned {order!r}", arguments)
    if invalid := [i for i in order if not 0 <= i < arguments["size"]]:
        raise LawBroken(f"index {invalid[0]} is out of range", arguments)
    repeated = build(subject, *data)
    if list(order) != list(repeated):
        raise LawBroken(f"{list(order)} the first time, {list(repeated)} the second", arguments)


@law("rlm_models")
def source(subject: Subject, draw: Draw) -> None:
    """Check that it describes a model without loading it: a ModelSpec with a config."""
    spec = build(subject)
    if not isinstance(spec, ModelSpec):
        raise LawBroken(f"it returned {type(spec).__name__}")
    if not hasattr(spec.config, "to_dict") or not callable(spec.load) or not callable(spec.tokenizer):
        raise LawBroken("its config is no transformers config, or `load` or `tokenizer` is not callable")


@law("rlm_algorithms")
def algorithm(subject: Subject, draw: Draw) -> None:
    """Check that every slot names a known part, with knobs that fit."""
    from rlm_plugins.registry import Registry

    if not isinstance(subject.part.target, Algorithm):
        raise LawBroken(f"it is a {type(subject.part.target).__name__}, not an Algorithm")
    registry = Registry()
    registry.find("rlm_trainers", subject.part.target.trainer)
    for key, slot in subject.part.target.slots().items():
        hook = next(hook for hook, known in HOOKS.items() if known.key == key)
        specs: list[Any] = list(slot) if isinstance(slot, list | tuple) else [slot]
        for spec in specs:
            if spec is not None:
                knobs: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
                part = registry.find(hook, knobs.pop("name"), where=key)
                part.bind({k: v for k, v in knobs.items() if k not in HOOKS[hook].options}, where=key)
