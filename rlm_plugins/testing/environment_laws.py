"""The laws of what surrounds the equation: environments, samplers, models, algorithms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.environment import Environment, has_step
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.rollout.tools import tools_of
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.testing.batch_transforms import copied
from rlm_plugins.testing.env_actions import calls, played, spoken
from rlm_plugins.testing.law import Draw, law
from rlm_plugins.testing.part_under_test import LawBroken, Subject, failure, remembering, saved
from rlm_plugins.testing.strategies import batches

LOOKED_AT = 200
"""Rows of a world that are looked at."""


def built(subject: Subject, *data: Any) -> Any:
    """What the part makes.

    Raises:
        LawBroken: It raised something.
    """
    try:
        return subject.fresh().call(dict(zip(subject.part.needs, data, strict=False)))
    except Exception as error:
        raise LawBroken(failure(error)) from error


def _rows(rows: Any) -> list[Any]:
    return list(islice(iter(rows), LOOKED_AT))


def _prompt(row: Mapping[str, Any]) -> str:
    return json.dumps(row["prompt"], sort_keys=True, default=str)


@law("rlm_environments")
def environment_spec(subject: Subject, draw: Draw) -> None:
    """It builds a EnvironmentSpec with rows to train on, each with a prompt: text, or messages with a role and a
    content."""
    made = built(subject)
    if not isinstance(made, EnvironmentSpec):
        raise LawBroken(f"it returned {type(made).__name__}")
    rows = [*_rows(made.train), *_rows(made.test)]
    if not _rows(made.train):
        raise LawBroken("it has no rows to train on")
    for row in rows:
        prompt = row.get("prompt") if isinstance(row, Mapping) else None
        chat = isinstance(prompt, list) and prompt and all({"role", "content"} <= {*message} for message in prompt)
        if not (isinstance(prompt, str) or chat):
            raise LawBroken(f"a row has no prompt: {row!r}")


@law("rlm_environments")
def held_out(subject: Subject, draw: Draw) -> None:
    """No problem of the test stands in the training rows."""
    made = built(subject)
    tested = {_prompt(row) for row in made.test}
    seen = next((row for row in made.train if _prompt(row) in tested), None)
    if seen is not None:
        raise LawBroken(f"this one does: {seen!r}")


@law("rlm_environments")
def repeat(subject: Subject, draw: Draw) -> None:
    """It builds the same rows every time."""
    first, second = built(subject), built(subject)
    if _rows(first.train) != _rows(second.train) or _rows(first.test) != _rows(second.test):
        raise LawBroken("the second time the rows are others: draw them from a generator with a seed of its own")


@law("rlm_environments")
def episode(subject: Subject, draw: Draw) -> None:
    """Where it answers, an episode depends on its row and the actions alone, and no action breaks it."""
    made = built(subject)
    if not made.multi_turn:
        return
    row = dict(draw(st.sampled_from(_rows(made.train)[:8])))
    first, second = (made.environment() if made.environment else Environment() for _ in range(2))
    actions = draw(spoken() if has_step(first) else calls([*made.tools, *tools_of(first)]))
    told = []
    for environment in (first, second):
        try:
            told.append(played(environment, row, actions, made.tools))
        except Exception as error:
            raise LawBroken(failure(error), {"row": row, "actions": actions}) from error
    if told[0] != told[1]:
        raise LawBroken(f"{told[0]} the first time, {told[1]} the second", {"row": row, "actions": actions})


def _on_demand(subject: Subject) -> bool:
    return subject.names("count")


@law("rlm_samplers", applies=_on_demand)
def choice(subject: Subject, draw: Draw) -> None:
    """It returns `count` different indices, each of a row that exists; the same for the same draw, seed and memory."""
    size = draw(st.integers(1, 40))
    asked = {
        "size": size,
        "count": draw(st.integers(1, size)),
        "draw": draw(st.integers(0, 3)),
        "seed": draw(st.integers(0, 99)),
    }
    given = {name: asked[name] for name in (*subject.part.needs, *subject.part.welcomes)}
    old, new = subject.fresh(), subject.fresh()
    batch = draw(batches())
    for part in (old, new):
        part.update(copied(batch))
    found = list(old.call(given))
    if len(set(found)) != asked["count"] or len(found) != asked["count"] or not set(found) <= set(range(size)):
        raise LawBroken(f"it returned {found!r}", asked)
    if isinstance(subject.part.target, type):
        new = subject.fresh()
        remembering(new).load_state_dict(saved(remembering(old).state_dict()))
    if found != (again := list(new.call(given))):
        raise LawBroken(f"{found} the first time, {again} from the memory of a checkpoint", asked)


@law("rlm_samplers", applies=lambda s: not _on_demand(s))
def indices(subject: Subject, draw: Draw) -> None:
    """It returns at most `size` indices, each of a row that exists; the same for the same epoch and seed."""
    asked = {"size": draw(st.integers(1, 40)), "epoch": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 99))}
    data = [asked[name] for name in subject.part.needs]
    order = built(subject, *data)
    if not all(isinstance(i, int) for i in order) or len(order) > asked["size"]:
        raise LawBroken(f"it returned {order!r}", asked)
    if wrong := [i for i in order if not 0 <= i < asked["size"]]:
        raise LawBroken(f"there is no row {wrong[0]}", asked)
    if list(order) != list(again := built(subject, *data)):
        raise LawBroken(f"{list(order)} the first time, {list(again)} the second", asked)


@law("rlm_models")
def source(subject: Subject, draw: Draw) -> None:
    """It describes a model without loading it: a ModelSpec with a config."""
    made = built(subject)
    if not isinstance(made, ModelSpec):
        raise LawBroken(f"it returned {type(made).__name__}")
    if not hasattr(made.config, "to_dict") or not callable(made.load) or not callable(made.tokenizer):
        raise LawBroken("its config is no transformers config, or load or tokenizer cannot be called")


@law("rlm_algorithms")
def row(subject: Subject, draw: Draw) -> None:
    """Every slot names a part that exists, with knobs that fit."""
    from rlm_plugins.registry import Registry

    if not isinstance(subject.part.target, Algorithm):
        raise LawBroken(f"it is a {type(subject.part.target).__name__}, not a Algorithm")
    registry = Registry()
    registry.find("rlm_trainers", subject.part.target.trainer)
    for key, slot in subject.part.target.slots().items():
        hook = next(hook for hook, known in HOOKS.items() if known.key == key)
        specs: list[Any] = list(slot) if isinstance(slot, list | tuple) else [slot]
        for spec in specs:
            if spec is not None:
                knobs: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
                found = registry.find(hook, knobs.pop("name"), where=key)
                found.bind({k: v for k, v in knobs.items() if k not in HOOKS[hook].keys}, where=key)
