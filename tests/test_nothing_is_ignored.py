"""Overrides of TRL's methods, fields of its config, and keys of a recipe: each has an effect, or is an error."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import dis
import functools
import importlib.util
import inspect
import json
import logging
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import tiny
import torch
import trl
from repetition import one_in
from test_trl_trainers import trained, trainer_of_kind, weights

import rlm_plugins as rlm
import rlm_plugins.trainer
from rlm_plugins import GRPOTrainer, RLOOTrainer, stage
from rlm_plugins.builtin.dataset_environment import dataset
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.document import of_mapping
from rlm_plugins.recipe.paths import leaves
from rlm_plugins.recipe.trl_fields import GRPO, decided
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer.options import arguments

NEVER_CALLED = {"get_high_entropy_mask", "get_off_policy_mask", "get_gamma_weights"}
IN_THE_BATCH = {"vllm_importance_sampling_correction": "importance_sampling_ratio"}
"""Field → entry of TRL's dictionary that has its effect."""
METHODS = [name for name, x in vars(trl.GRPOTrainer).items() if callable(x) or isinstance(x, staticmethod)]
METHODS = [name for name in METHODS if not name.startswith("__")]
CHANGES = {"num_iterations": 2, "beta": 0.1, "eval_strategy": "steps", "eval_steps": 1}


def counting(base: Any, calls: Counter[str]) -> Any:
    """Return a subclass of `base` that counts the calls of every method that TRL's trainer defines."""

    def counted(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return getattr(super(counted_trainer, self), name)(*args, **kwargs)

        return method

    names = [name for name in METHODS if name not in NEVER_CALLED]
    counted_trainer = type("Counted", (base,), {name: counted(name) for name in names})
    return counted_trainer


def test_every_method_that_trl_calls_is_called_as_often(tmp_path: Path) -> None:
    stock, ours = Counter[str](), Counter[str]()
    data = {"eval_dataset": tiny.problems(4)}
    changes = CHANGES | {"save_strategy": "steps", "save_steps": 2}
    trained(counting(trl.GRPOTrainer, stock), tmp_path / "stock", data, **changes)
    trained(counting(GRPOTrainer, ours), tmp_path / "ours", data, **changes)
    assert stock["_get_per_token_logps_and_entropies"] > 0
    assert dict(ours) == dict(stock)


def changed(base: Any, name: str, change: Any) -> Any:
    """Return a subclass of `base` in which the tensors that a method returns are changed."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(super(subclass, self), name)(*args, **kwargs)
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    subclass = type("Changed", (base,), {name: method})
    return subclass


OVERRIDES = {
    "_calculate_rewards": lambda rewards: rewards.round(),
    "_get_per_token_logps_and_entropies": lambda logps: logps * 0.5,
    "_compute_loss": lambda loss: loss * 2,
    "training_step": lambda loss: loss,
}


@pytest.mark.parametrize("name", one_in(4, [*OVERRIDES]))
def test_an_override_trains_to_the_weights_of_trl(tmp_path: Path, name: str) -> None:
    plain = weights(trained(trl.GRPOTrainer, tmp_path / "plain", num_iterations=2))
    stock = weights(trained(changed(trl.GRPOTrainer, name, OVERRIDES[name]), tmp_path / "stock", num_iterations=2))
    ours = changed(GRPOTrainer, name, OVERRIDES[name])
    assert torch.equal(weights(trained(ours, tmp_path / "ours", {"speed": "none"}, num_iterations=2)), stock)
    torch.testing.assert_close(weights(trained(ours, tmp_path / "fast", num_iterations=2)), stock, rtol=0, atol=5e-4)
    assert torch.equal(plain, stock) == (name == "training_step")


def test_rewards_without_super(tmp_path: Path) -> None:
    """An override may compute all rewards itself; another shape is an error."""

    class Constant(RLOOTrainer):
        def _calculate_rewards(self, inputs: Any, prompts: Any, *args: Any) -> Any:
            return torch.ones(len(prompts), 1)

    class Flat(GRPOTrainer):
        def _calculate_rewards(self, inputs: Any, prompts: Any, *args: Any) -> Any:
            return torch.ones(len(prompts))

    trainer = trainer_of_kind(Constant, tmp_path / "constant", config=trl.RLOOConfig, beta=0.0)
    before = weights(trainer).clone()
    trainer.train()
    assert torch.equal(weights(trainer), before)
    with pytest.raises(PartError, match=r"_calculate_rewards: expected shape \(8, 1\), got \(8,\)"):
        trained(Flat, tmp_path / "flat")


@pytest.mark.parametrize("name", sorted(NEVER_CALLED))
def test_an_override_that_is_never_called_is_refused(tmp_path: Path, name: str) -> None:
    subclass = type("Mine", (GRPOTrainer,), {name: lambda *_: None})
    with pytest.raises(RlmError, match=rf"Mine\.{name}: would never be called: the slot"):
        trainer_of_kind(subclass, tmp_path)
    trainer_of_kind(type("Own", (subclass,), {"_compute_loss": lambda *_: None}), tmp_path)


def test_rloo_has_no_further_methods() -> None:
    assert {
        name for name in vars(trl.RLOOTrainer) if not name.startswith("__") and callable(getattr(trl.RLOOTrainer, name))
    } <= {*METHODS, "_tag_names"}


def read_by(method: Any) -> set[str]:
    """Return the attributes of `self` and `self.args` that a method of TRL reads."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(method))))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if ast.unparse(node.value) in ("self", "self.args")}


def test_every_field_that_a_replaced_method_reads_is_read_here() -> None:
    """`_compute_loss` and the sampler of TRL are not called: a field of theirs is the equation's, or ours."""
    fields = {f.name for f in dataclasses.fields(trl.GRPOConfig)}
    replaced = [trl.GRPOTrainer._compute_loss, trl.GRPOTrainer._get_train_sampler]
    ours = "".join(file.read_text() for file in Path(rlm_plugins.trainer.__file__).parent.glob("*.py"))
    for method in replaced:
        used = {name: IN_THE_BATCH.get(name, name) in ours for name in read_by(method) & fields - {*decided(GRPO)}}
        unread = [name for name, is_used in used.items() if not is_used]
        assert not unread, method.__name__


def loaded(code: CodeType) -> set[str]:
    """Return the names that a function reads, with those inside it."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname.startswith("LOAD_")}
    return names.union(*(loaded(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


@functools.cache
def attributes_in(package: str) -> set[str]:
    """Return the attributes that the modules of a package read, by name or by a text that is equal to it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    names: set[str] = set()
    for file in Path(spec.submodule_search_locations[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names |= {node.attr} if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) else set()
            names |= {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
    return names


def read_by_function(function: Any) -> set[str]:
    """Return the names that a function reads, and those that each function inside its wrappers reads."""
    names: set[str] = set()
    while function is not None:
        plain = function.func if isinstance(function, functools.partial) else function
        names |= loaded(getattr(plain, "__code__", None) or type(plain).__call__.__code__)
        function = getattr(function, "__wrapped__", None)
    return names


def read_in(part: Part) -> set[str]:
    """Return the names that the code of a part reads."""
    if not inspect.isclass(part.target):
        return read_by_function(part.target)
    methods = [x for base in part.target.__mro__ for x in vars(base).values() if inspect.isfunction(x)]
    return attributes_in(part.target.__module__.partition(".")[0]).union(*map(read_by_function, methods))


def test_every_knob_of_every_part_is_read() -> None:
    unread = {
        part.full_name: {*part.knobs.model_fields} - read_in(part) for part in Registry() if part.knobs.model_fields
    }
    assert {name: knobs for name, knobs in unread.items() if knobs} == {}


@pytest.mark.parametrize("section", [stage.Evaluation, stage.Critic, stage.Reward])
def test_every_key_of_a_section_is_read(section: Any) -> None:
    assert {f.name for f in dataclasses.fields(section)} <= attributes_in("rlm_plugins")


WALKED: dict[str, Any] = {
    "model": {"name": "scratch", "hidden": 16, "layers": 1, "heads": 2, "intermediate": 16, "lora": {"r": 4}},
    "environment": {"name": "addition", "digits": 2, "train_rows": 16, "test_rows": 4},
    "rewards": ["accuracy", {"name": "format", "weight": 0.2}],
    "algorithm": "ppo",
    "critic": {"warmup_steps": 1},
    "evaluation": {"every": 4},
    "trainer": tiny.recipe()["trainer"],
}


def state_of(value: Any, outer: frozenset[int] = frozenset()) -> Any:
    """Return what an object holds as plain data: fields, items, and what a function was closed over."""
    if value is None or isinstance(value, str | int | float):
        return value
    inner = functools.partial(state_of, outer=outer | {id(value)})
    if id(value) in outer or isinstance(value, type):
        return repr(type(value))
    if isinstance(value, Mapping):
        return {repr(key): inner(x) for key, x in value.items() if key != "body"}
    if isinstance(value, Sequence | Set):
        return [inner(x) for x in value]
    if isinstance(value, functools.partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, FunctionType):
        return [value.__qualname__, *(inner(cell.cell_contents) for cell in value.__closure__ or ())]
    return [type(value).__name__, inner(getattr(value, "__dict__", {}))]


def built(overrides: Sequence[str] = ()) -> tuple[stage.Stage, dict[str, Any], str]:
    """Return the stage of a recipe, the arguments of its trainer, and all that a run is built from, as text."""
    (found,) = compose(of_mapping(WALKED, overrides), Registry())
    arguments_of = arguments(found, stage.RunState()).to_dict()
    held = {key: value for key, value in vars(found).items() if key not in ("body", "settings")}
    return found, arguments_of, json.dumps([state_of(held), state_of(arguments_of)])


def other(value: Any) -> Any:
    """Return another value of the same type; None for a type without an evident one."""
    if isinstance(value, bool):
        return not value
    return (2 * value or 1) if isinstance(value, int) else (value / 2 or 0.25) if isinstance(value, float) else None


def test_every_override_changes_what_is_built_or_is_refused() -> None:
    found, used, unchanged = built()
    assert built()[2] == unchanged
    fields = {field.name: used.get(field.name, field.default) for field in dataclasses.fields(trl.GRPOConfig)}
    addresses = {f"trainer.{name}": value for name, value in fields.items()}
    addresses |= {".".join(map(str, path)): value for path, value in leaves(found.body)}
    walked, ignored = 0, []
    for address, value in addresses.items():
        if (changed_value := other(value)) is not None:
            walked += 1
            with contextlib.suppress(RlmError):
                if built([f"{address}={json.dumps(changed_value)}"])[2] == unchanged:
                    ignored.append(address)
    assert walked > 100
    assert ignored == []


def test_the_length_of_an_evaluation_is_its_own() -> None:
    recipe: dict[str, Any] = {
        "model": {"name": "scratch", "hidden": 16, "layers": 1, "heads": 2, "intermediate": 16},
        "environment": {"name": "addition", "digits": 2, "train_rows": 16, "test_rows": 4},
        "rewards": ["accuracy"],
        "algorithm": "grpo",
        "trainer": {"max_completion_length": 5},
    }
    (inherited,) = compose(rlm.load(recipe), Registry())
    (own,) = compose(rlm.load(recipe | {"evaluation": {"max_new_tokens": 9}}), Registry())
    assert (inherited.longest_completion, own.longest_completion) == (5, 9)


def test_training_examples_with_a_held_out_prompt_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def written(name: str, prompts: list[str]) -> str:
        (tmp_path / name).write_text("".join(json.dumps({"prompt": text, "answer": "1"}) + "\n" for text in prompts))
        return str(tmp_path / name)

    train, test = written("train.jsonl", ["a", "b", "b", "c"]), written("test.jsonl", ["b", "d"])
    with caplog.at_level(logging.WARNING):
        assert len(dataset(path=train, test_path=test).train) == 2
        assert "2 of 4 training examples have the prompt of a held-out example and are not" in caplog.text
        caplog.clear()
        assert len(dataset(path=test, test_rows=1).train) == 1
        assert not caplog.text
    with pytest.raises(RlmError, match="3 of 4 training examples have the prompt of a held-out example, which leaves"):
        dataset(path=written("same.jsonl", ["a"] * 4), test_rows=1)
    with pytest.raises(RlmError, match="4 of 4 examples are held out, which leaves none"):
        dataset(path=train, test_rows=4)
