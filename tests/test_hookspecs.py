"""Every docstring of `hookspecs.py` ends in a part, called on a batch; optional members are declared in one file."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
import transformers
import trl
import typer
from rlm_lab import scaffold as examples
from rlm_lab.scaffold import KINDS
from rlm_testing.conformance_kit import find_violation, report
from rlm_testing.law import Subject, battery
from tiny import tokenizer
from typer.testing import CliRunner

from rlm_plugins import hookspecs
from rlm_plugins.equation.batch import LOSS, SCORING
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RecipeError
from rlm_plugins.registry import Registry, protocols
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import MEMBERS, capabilities
from rlm_plugins.specs import SLOTS, EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Place, RunState, Stage
from rlm_plugins.trainer import options
from rlm_plugins.trainer.observer import ObservedSteps

GROUP, REWARDS = [0, 0, 0, 1, 1, 1], [0.0, 0.25, 1.0, 0.0, 0.0, 0.0]


def load(hook: str, folder: Path) -> Registry:
    """Return a registry with the example of `hook`, written to a file."""
    path = folder / "example.py"
    path.write_text(examples.module_text(hook, examples.part_name(hook)), encoding="utf-8")
    registry = Registry(load=[path])
    assert not registry.broken()
    return registry


def bound(hook: str, folder: Path, **knobs: Any) -> Bound:
    return load(hook, folder).find(hook, f"example/{examples.part_name(hook)}").bind(knobs)


# ------------------------------------------------------------------ each example, called


def environments(ask: Callable[..., Bound]) -> None:
    environment_spec = ask(highest=4, held_out=2).call({})
    assert [row["prompt"] for row in environment_spec.test] == ["2*0=", "2*1="]
    assert [row["answer"] for row in environment_spec.train] == ["4", "6", "8"]
    assert environment_spec.train[0]["demonstration"] == "4"


def samplers(ask: Callable[..., Bound]) -> None:
    assert ask().call({"size": 3, "epoch": 0}) == [0, 1, 2]
    assert ask().call({"size": 3, "epoch": 1}) == [2, 1, 0]
    assert ask(epochs=2).call({"size": 3, "epoch": 1}) == [0, 1, 2]


def rollouts(ask: Callable[..., Bound]) -> None:
    class Tokenizer:
        eos_token_id = 0

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [ord(letter) for letter in text]}

    written = ask(text="ok").call({"prompts": ["a", "b"], "tokenizer": Tokenizer()})
    assert written == {"completion_ids": [[111, 107, 0]] * 2}


def generators(ask: Callable[..., Bound]) -> None:
    def generate(input_ids: torch.Tensor, generation_config: Any) -> torch.Tensor:
        return torch.cat([input_ids, input_ids[:, :1].expand(-1, int(input_ids[0, 0]))], 1)  # row 0 says how long

    given = {"generate": generate, "inputs": {"input_ids": torch.tensor([[1], [2]])}}
    wrote = ask(batch_size=1).call({**given, "config": SimpleNamespace(pad_token_id=0)})
    assert wrote.tolist() == [[1, 1, 0], [2, 2, 2]]


def engines(ask: Callable[..., Bound]) -> None:
    engine: Any = ask().target
    engine.sync(Path("adapter"), 3)
    completions = engine.generate([[1, 2]], {"max_tokens": 3})
    assert (completions.ids, completions.versions) == ([[2, 2, 2]], [3])
    assert [len(row) for row in engine.score([[1, 2, 3]])] == [2]


def rewards(ask: Callable[..., Bound]) -> None:
    assert ask(characters=4).call({"completions": ["", "ab", "abcdefgh"]}) == [1.0, 0.5, 0.0]


def teachers(ask: Callable[..., Bound]) -> None:
    assert ask(logp=-2.0).call({"completion_ids": [[1, 2], [3]]}) == [[-2.0, -2.0], [-2.0]]


VALUES: dict[str, tuple[dict[str, float], dict[str, Any], Any]] = {
    "rlm_shapers": ({"temperature": 2.0}, {"rewards": [0.0, 1.0]}, [0.5, 1 / (1 + math.exp(-0.5))]),
    "rlm_filters": ({"at_least": 0.4}, {"rewards": REWARDS, "group": GROUP}, [True] * 3 + [False] * 3),
    "rlm_advantages": ({}, {"rewards": REWARDS, "group": GROUP}, [-0.25, 0.0, 0.75, 0.0, 0.0, 0.0]),
    "rlm_importance": ({}, {"logp": [-1.0, -2.0], "old_logp": [-1.5, -2.0]}, [0.5, 0.0]),
    "rlm_policy_losses": ({"cap": 2.0}, {"ratio": [0.5, 3.0, 3.0], "advantages": [1.0, 1.0, -1.0]}, [-0.5, -2.0, 2.0]),
    "rlm_token_weights": ({"half_life": 2.0}, {"logp": [[0.0] * 5] * 2}, [[1.0, 0.5**0.5, 0.5, 0.5**1.5, 0.25]] * 2),
    "rlm_penalties": ({}, {"logp": [-1.0, -2.0], "old_logp": [-3.0, -2.0]}, [2.0, 0.0]),
    "rlm_aggregators": (
        {},
        {
            "loss": [[1.0, 1.0, 1.0, 1.0], [3.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]],
            "mask": [[True] * 4, [True, False, False, False], [False] * 4],
            "num_sequences": 2.0,
        },
        (4 / 2 + 3 / 1) / 2,
    ),
}
"""Symbol of the equation → knobs, data, and the value by hand."""


@pytest.mark.parametrize("hook", VALUES)
def test_example_of_a_symbol_computes_its_docstring(hook: str, tmp_path: Path) -> None:
    knobs, data, expected = VALUES[hook]
    found = bound(hook, tmp_path, **knobs).call({name: torch.tensor(x) for name, x in data.items()})
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-7)


def observers(ask: Callable[..., Bound]) -> None:
    observer, logged = ask(tokens=2).target, []
    context = SimpleNamespace(log=lambda name, value: logged.append((name, value)))
    observer.attach(SimpleNamespace(components=SimpleNamespace(context=context)))
    observer.scored(SimpleNamespace(mask=torch.tensor([[1, 0, 0], [1, 1, 1]])), [])
    assert logged == [("longest", 1.5)]
    assert not observer.skips_update()


def sections(ask: Callable[..., Bound]) -> None:
    (stop,) = ask(tokens=10).target.callbacks(None, None, None)
    control = SimpleNamespace(should_training_stop=False)
    stop.on_step_end(None, SimpleNamespace(num_input_tokens_seen=9), control)
    assert not control.should_training_stop
    stop.on_step_end(None, SimpleNamespace(num_input_tokens_seen=10), control)
    assert control.should_training_stop


def callbacks(ask: Callable[..., Bound]) -> None:
    watch, control = ask(tokens=10.0).call({}), SimpleNamespace(should_training_stop=False)
    watch.on_log(None, None, control, logs={"completions/mean_length": 9.0})
    assert control.should_training_stop is False
    watch.on_log(None, None, control, logs={"completions/mean_length": 11.0})
    assert control.should_training_stop is True


def commands(ask: Callable[..., Bound]) -> None:
    app, part = typer.Typer(), ask()
    app.command()(part.target)
    with TemporaryDirectory() as folder:
        (Path(folder) / "samples.jsonl").write_text('{"completion": "abc"}\n{"completion": "a"}\n')
        assert CliRunner().invoke(app, [folder]).output == "2.0\n"


OTHERS = (
    environments,
    samplers,
    rollouts,
    generators,
    engines,
    rewards,
    teachers,
    callbacks,
    observers,
    sections,
    commands,
)
CALLED: dict[str, Callable[[Callable[..., Bound]], None]] = {f"rlm_{other.__name__}": other for other in OTHERS}
ELSEWHERE = {"rlm_algorithms", "rlm_models", "rlm_trainers", "rlm_settings"}


def test_every_example_is_called() -> None:
    assert {*CALLED, *VALUES} | ELSEWHERE == set(HOOKS)


@pytest.mark.parametrize("hook", CALLED)
def test_example_computes_its_docstring(hook: str, tmp_path: Path) -> None:
    CALLED[hook](lambda **knobs: bound(hook, tmp_path, **knobs))


@pytest.mark.parametrize("hook", sorted(set(HOOKS) - set(KINDS.values())))
def test_example_without_a_kind_of_package_obeys_its_laws(hook: str, tmp_path: Path) -> None:
    part = load(hook, tmp_path).find(hook, f"example/{examples.part_name(hook)}")
    subject = Subject(part, {"path": "somewhere"} if hook == "rlm_models" else {})
    for law in battery(subject):
        if law.name != "source":  # the model would load a tokenizer from its path
            broken = find_violation(law, subject)
            assert broken is None, report(law, subject, broken)


def test_the_example_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    names = {"transformers": transformers, "AutoTokenizer": transformers.AutoTokenizer, "ModelSpec": ModelSpec}
    names["hookimpl"] = lambda function: function
    exec(examples.source("rlm_models"), names)
    found = names["tiny_gpt"](path=str(tmp_path / "tokenizer"), layers=1)
    assert found.config.n_layer == 1
    assert found.tokenizer()("1+1")["input_ids"] == tokenizer()("1+1")["input_ids"]
    monkeypatch.setattr(transformers, "GPT2LMHeadModel", lambda config: config)
    assert found.load() is found.config


def test_the_example_trainer_trains_the_last_layer(tmp_path: Path) -> None:
    class Observed(ObservedSteps, trl.SFTTrainer):  # type: ignore[misc]
        pass

    names = {"trl": trl, "setup": options, "Observed": Observed, "hookimpl": lambda function: function}
    exec(examples.source("rlm_trainers"), names)
    data = tiny.problems().map(lambda row: {"text": row["prompt"] + "1"}, remove_columns=["prompt", "answer"])
    names["Observed"] = partial(Observed, train_dataset=data)
    source = ModelSpec(config=tiny.model().config, tokenizer=tiny.tokenizer, load=tiny.model)
    settings = {"max_steps": 2, "per_device_train_batch_size": 2, "save_strategy": "no"}
    part = names["LastLayer"]()
    stage = Stage("01-x", {}, part, settings, EnvironmentSpec(train=data), source, place=Place(tmp_path))
    trainer = part.build(stage, RunState())
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"lm_head.weight"}


def test_the_example_setting_checks_its_value_and_the_config(tmp_path: Path) -> None:
    setting = load("rlm_settings", tmp_path).find("rlm_settings", "max_seconds").target
    setting.check_value("max_seconds", 0.5)
    with pytest.raises(RecipeError, match="more than 0"):
        setting.check_value("max_seconds", 0)
    setting.check(SimpleNamespace(use_vllm=False))
    with pytest.raises(RecipeError, match="decoding in this process"):
        setting.check(SimpleNamespace(use_vllm=True))


# ------------------------------------------------------------------ the table of hooks


@pytest.mark.parametrize("hook", HOOKS)
def test_example_is_short_and_documented(hook: str) -> None:
    lines = examples.source(hook).splitlines()
    assert len([line for line in lines if line.strip()]) <= 16
    assert hook == "rlm_settings" or examples.about(hook).endswith(".")
    assert lines[-3:-1] == ["@hookimpl", f"def {hook}():"]


def test_every_spec_is_in_the_table_in_the_same_order() -> None:
    specs = [name for name, value in vars(hookspecs).items() if hasattr(value, "rlm_spec")]
    assert specs == list(HOOKS)
    assert all(not inspect.signature(getattr(hookspecs, hook)).parameters for hook in HOOKS)


def test_every_slot_is_the_key_of_a_hook() -> None:
    rooms = {hook.key: hook.data for hook in HOOKS.values()}
    assert {rooms[slot] for slot in SLOTS if slot not in ("sampler", "rollouts")} == {SCORING, LOSS}
    assert len({hook.key for hook in HOOKS.values()}) == len(HOOKS)


MACHINE = {"rlm_rollouts", "rlm_trainers", "rlm_models", "rlm_engines", "rlm_teachers"}
MACHINE |= {"rlm_commands", "rlm_observers", "rlm_sections", "rlm_settings"}


def test_every_kind_of_package_has_a_hook() -> None:
    assert set(KINDS.values()) == set(HOOKS) - MACHINE


REGISTRY = Registry()


def reward_with(member: str) -> Part:
    """Return a reward class with one additional method."""

    class Extra:
        def __call__(self, completions):  # type: ignore[no-untyped-def]
            return [0.0 for _ in completions]

    setattr(Extra, member, lambda self, **knobs: None)
    return Part("rlm_rewards", "extra", "guest", Extra)


def filter_with(member: str, hook: str = "rlm_filters") -> Part:
    """Return a filter function with one additional attribute."""

    def extra(rewards):  # type: ignore[no-untyped-def]
        return rewards > 0

    setattr(extra, member, lambda config: None)
    return Part(hook, "extra", "guest", extra)


MISSPELLED = {
    "chck": "check",
    "setupp": "setup",
    "valdate": "validate",
    "validates": "validate",
    "memorybytes": "memory_bytes",
    "load_sate_dict": "load_state_dict",
    "evalute": "evaluate",
}


@pytest.mark.parametrize(("name", "meant"), MISSPELLED.items())
@pytest.mark.parametrize("make", [reward_with, filter_with])
def test_a_misspelled_member_is_an_error(name: str, meant: str, make: Any) -> None:
    with pytest.raises(PluginError, match=rf"has a member '{name}', which is never used(.|\n)*did you mean `{meant}`"):
        make(name).check()


def test_every_optional_member_belongs_to_a_protocol_and_every_protocol_has_a_sentence() -> None:
    declared = {
        value for value in vars(protocols).values() if inspect.isclass(value) and hasattr(value, "_is_protocol")
    }
    assert {kind for kind in declared if kind.__module__ == protocols.__name__} == set(MEMBERS.values())
    for name, protocol in MEMBERS.items():
        assert name in {**vars(protocol), **protocol.__annotations__}
        assert (protocol.__doc__ or "").partition("\n")[0].endswith((".", ":")), protocol


FOUND = {
    ("rlm_samplers", "curriculum"): {"update", "state_dict", "load_state_dict"},
    ("rlm_generators", "fast"): {"dry_run"},
    ("rlm_filters", "keep_k"): {"validate"},
    ("rlm_rewards", "reward_model"): {"check", "setup", "memory_bytes", "produces"},
    ("rlm_trainers", "reward_model"): {"config_class", "build", "complete", "columns", "prepare", "produces", "metrics",
        "evaluate", "refused"},
}  # fmt: skip


@pytest.mark.parametrize(("hook", "name"), FOUND)
def test_capabilities_of_a_part_are_explained(hook: str, name: str) -> None:
    part = REGISTRY.find(hook, name)
    assert {member for member, _ in capabilities(part)} == FOUND[hook, name]
    assert all(sentence for _, sentence in capabilities(part))
    assert hook in HOOKS
