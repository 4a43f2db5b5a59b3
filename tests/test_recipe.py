"""Reading a recipe: its structure, paths, inheritance between stages, and overrides of the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import Recipe, load
from rlm_plugins.recipe import document as recipe
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.recipe.part_lookup import absolute_settings
from rlm_plugins.recipe.paths import format_path, parse_path
from rlm_plugins.recipe.sections import SECTIONS, Document
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.registry import Registry
from rlm_plugins.specs import SLOTS

SMALL = """\
model: {name: scratch, hidden: 64}
environment: addition
rewards: [accuracy, {name: format, weight: 0.1}]
algorithm: grpo
trainer: {learning_rate: 1e-6}
"""
STAGES = """\
model: {name: scratch, lora: {r: 8}}
environment: {name: addition, digits: 3}
rewards: [accuracy]
trainer: {learning_rate: 1e-3, lr_scheduler_kwargs: {a: 1}}
stages:
  - name: warm-up
    algorithm: sft
    model: {name: scratch}
    trainer: {max_steps: 9, lr_scheduler_kwargs: {b: 2}}
  - algorithm: {name: grpo, policy_loss: {epsilon: 0.3}}
    rewards: [{name: format}]
    evaluation: null
"""


def read(folder: Path, text: str, *overrides: str) -> Recipe:
    path = folder / "recipe.yaml"
    path.write_text(text)
    return recipe.load(path, overrides)


def test_bare_names_become_mappings_and_values_keep_their_line(tmp_path: Path) -> None:
    found = read(tmp_path, SMALL)
    assert found.name == "recipe"
    assert found.stage_paths == [()]
    assert found.bodies == [
        {
            "model": {"name": "scratch", "hidden": 64},
            "environment": {"name": "addition"},
            "rewards": [{"name": "accuracy"}, {"name": "format", "weight": 0.1}],
            "algorithm": {"name": "grpo"},
            "trainer": {"learning_rate": 1e-6},
        }
    ]
    assert found.origins["environment.name"] == "recipe.yaml line 2"
    assert found.origins["rewards[1].weight"] == "recipe.yaml line 3"
    assert found.origins["trainer.learning_rate"] == "recipe.yaml line 5"


def test_stage_inherits_sections_whole_and_trainer_by_key(tmp_path: Path) -> None:
    found = read(tmp_path, STAGES)
    first, second = found.bodies
    assert found.stage_paths == [("stages", 0), ("stages", 1)]
    assert first == {
        "name": "warm-up",
        "model": {"name": "scratch"},
        "environment": {"name": "addition", "digits": 3},
        "rewards": [{"name": "accuracy"}],
        "algorithm": {"name": "sft"},
        "trainer": {"learning_rate": 1e-3, "max_steps": 9, "lr_scheduler_kwargs": {"b": 2}},
    }
    assert second == {
        "name": None,
        "model": {"lora": {"r": 8}},  # not the weights: a later stage starts from the last one's model
        "environment": {"name": "addition", "digits": 3},
        "rewards": [{"name": "format"}],
        "algorithm": {"name": "grpo", "policy_loss": {"epsilon": 0.3}},
        "trainer": {"learning_rate": 1e-3, "lr_scheduler_kwargs": {"a": 1}},
        "evaluation": None,
    }
    assert found.origins["stages[1].trainer.learning_rate"] == "recipe.yaml line 4"
    assert found.origins["stages[0].trainer.max_steps"] == "recipe.yaml line 9"
    assert "stages[0].trainer.lr_scheduler_kwargs.a" not in found.origins
    assert found.origins["stages[1].environment.digits"] == "recipe.yaml line 2"
    assert found.origins["stages[1].algorithm.policy_loss.epsilon"] == "recipe.yaml line 10"


def test_none_and_null_clear_a_key(tmp_path: Path) -> None:
    text = SMALL.replace("algorithm: grpo", "algorithm: {name: grpo, importance: none, penalties: none, sampler: none}")
    body = read(tmp_path, text).bodies[0]
    assert body["algorithm"] == {"name": "grpo", "importance": None, "penalties": None, "sampler": None}


def test_every_key_has_a_description() -> None:
    schema = Document.model_json_schema()
    sections = {"Document": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, each in sections.items()
        for key, field in each["properties"].items()
        if "description" not in field
    ]
    assert bare == []
    assert {"Critic", "Evaluation", "Reward", "Plugins"} <= set(sections)


OVERRIDES: list[tuple[str, str, Any]] = [
    ("algorithm.policy_loss.epsilon=0.3", "algorithm.policy_loss", {"epsilon": 0.3}),
    ("algorithm.policy_loss=cispo", "algorithm.policy_loss", {"name": "cispo"}),
    ("algorithm.importance=none", "algorithm.importance", None),
    ("algorithm.penalties.0.beta=0.1", "algorithm.penalties", {"0": {"beta": 0.1}}),
    ("algorithm.penalties.kl.beta=0.1", "algorithm.penalties", {"kl": {"beta": 0.1}}),
    ("rewards[0].weight=2", "rewards.0", {"name": "accuracy", "weight": 2}),
    ("rewards.accuracy.weight=2", "rewards.0", {"name": "accuracy", "weight": 2}),
    ("rewards=[format]", "rewards", [{"name": "format"}]),
    ("model.lora.r=16", "model", {"name": "scratch", "hidden": 64, "lora": {"r": 16}}),
    ("model=Qwen/Qwen3-0.6B", "model", {"name": "Qwen/Qwen3-0.6B"}),
    ("trainer.report_to=[wandb, tensorboard]", "trainer.report_to", ["wandb", "tensorboard"]),
    ("trainer.run_name='1e-5'", "trainer.run_name", "1e-5"),
    ("trainer.run_name=", "trainer.run_name", None),
    ("trainer.run_name=a=b", "trainer.run_name", "a=b"),
]


@pytest.mark.parametrize(("override", "address", "value"), OVERRIDES, ids=[o for o, _, _ in OVERRIDES])
def test_override_changes_one_value(override: str, address: str, value: Any, tmp_path: Path) -> None:
    found = read(tmp_path, SMALL, override)
    here: Any = found.bodies[0]
    for step in parse_path(address):
        here = here[int(step) if isinstance(here, list) else step]
    assert here == value
    changed = format_path(tuple(int(s) if s.isdecimal() else s for s in parse_path(override.partition("=")[0])))
    if "penalties" not in changed:
        assert found.origins[
            changed.replace("rewards.accuracy", "rewards[0]").replace("rewards.format", "rewards[1]")
        ] == ("command line")


def test_overrides_apply_in_order(tmp_path: Path) -> None:
    both = read(tmp_path, SMALL, "rewards=[length, length]", "rewards.1.as=short", "rewards.short.weight=-1")
    assert both.bodies[0]["rewards"] == [{"name": "length"}, {"name": "length", "as": "short", "weight": -1}]


def test_overrides_reach_stages_by_number_and_by_name(tmp_path: Path) -> None:
    overrides = ["stages.1.trainer.max_steps=5", "stages.warm-up.trainer.max_steps=7", "stages[1].name=climb"]
    found = read(tmp_path, STAGES, *overrides)
    assert [body["trainer"]["max_steps"] for body in found.bodies] == [7, 5]
    assert found.bodies[1]["name"] == "climb"
    assert found.bodies[1]["trainer"]["learning_rate"] == 1e-3


def test_an_override_of_an_inherited_section_keeps_the_rest_of_it(tmp_path: Path) -> None:
    found = read(tmp_path, STAGES, "stages.1.environment.digits=4", "stages.1.model.lora.lora_alpha=32")
    assert found.bodies[0]["environment"]["digits"] == 3
    assert found.bodies[1]["environment"] == {"name": "addition", "digits": 4}
    assert found.bodies[1]["model"] == {"lora": {"r": 8, "lora_alpha": 32}}
    assert found.origins["stages[1].environment.digits"] == "command line"
    assert found.origins["stages[1].environment.name"] == "recipe.yaml line 2"


def test_an_override_of_the_top_level_reaches_the_stages_that_inherit_it(tmp_path: Path) -> None:
    found = read(tmp_path, STAGES, "environment.digits=5", "trainer.learning_rate=1")
    assert [body["environment"]["digits"] for body in found.bodies] == [5, 5]
    assert [body["trainer"]["learning_rate"] for body in found.bodies] == [1, 1]


WRONG_OVERRIDES = [
    ("nonsense", "command line: nonsense", "expected `key=value`"),
    ("a..b=1", "command line: a..b=1", "expected `key=value`"),
    ("algoritm.name=dapo", "algoritm (command line)", "did you mean 'algorithm'?"),
    ("rewards.2.weight=1", "rewards (recipe.yaml line 3)", "0 (accuracy), 1 (format)"),
    (f"rewards.{'9' * 5000}.weight=1", "rewards (recipe.yaml line 3)", "unknown entry '999"),
    ("rewards.acuracy.weight=1", "rewards (recipe.yaml line 3)", "did you mean 'accuracy'?"),
    ("rewards.0.weight='2'", "rewards[0].weight (command line)", "remove the quotes"),
    ("rewards=accuracy", "rewards (command line)", "expected a list"),
    ("callbacks.0.steps=1", "callbacks", "`callbacks=[…]`"),
    ("stages.0.trainer.max_steps=1", "stages", "is not in this recipe"),
    ("trainer.learning_rate.x=1", "trainer.learning_rate (recipe.yaml line 5)", "unknown key 'x' of"),
    ("trainer.a=!!python/name:os.system", "command line: trainer.a line 1", "tags are not supported"),
    ("algorithm=none", "algorithm", "`algorithm:` is empty"),
    ("name=../../etc", "name (command line)", "it names a folder"),
]


@pytest.mark.parametrize(("override", "place", "words"), WRONG_OVERRIDES, ids=[o[:60] for o, _, _ in WRONG_OVERRIDES])
def test_invalid_override_is_reported(override: str, place: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, SMALL, override)
    assert str(caught.value).startswith(place)
    assert words in str(caught.value)


def test_override_without_effect_is_reported(tmp_path: Path) -> None:
    both = STAGES.replace("rewards: [{name: format}]", "trainer: {max_steps: 1}")
    with pytest.raises(RecipeError, match=r"trainer.max_steps \(command line\): has no effect[\s\S]*stages\[1\]"):
        read(tmp_path, both, "trainer.max_steps=3")
    with pytest.raises(RecipeError, match=r"several entries have the name 'x'"):
        read(tmp_path, STAGES, "stages.0.name=x", "stages.1.name=x", "stages.x.trainer.max_steps=1")


WRONG = [
    # unknown keys
    (SMALL + "enviroment: x\n", "enviroment (recipe.yaml line 6)", "did you mean 'environment'?"),
    (SMALL + "advantage: gae\n", "advantage (recipe.yaml line 6)", "it belongs under `algorithm:`"),
    (SMALL + "learning_rate: 1\n", "learning_rate (recipe.yaml line 6)", "belong under `trainer:`"),
    (SMALL.replace("grpo", "{name: ppo, critic: {}}"), "algorithm.critic", "`critic:` is a section of its own, beside"),
    (SMALL.replace("grpo", "{name: grpo, epsilon: 1}"), "algorithm.epsilon", "a knob belongs in its slot"),
    (SMALL + "lr: 3\n", "lr (recipe.yaml line 6)", "'lr' is `trainer.learning_rate`"),
    (SMALL + "stages:\n  - {algorithm: sft, stages: []}\n", "stages[0].stages (recipe.yaml line 7)",
        "unknown key 'stages'"),
    # wrong types
    (SMALL.replace("addition", "3"), "environment (recipe.yaml line 2)", "expected a mapping, got the number 3"),
    (SMALL.replace("grpo", "{name: grpo, penalties: {kl: 0.1}}"), "algorithm.penalties.kl", "[{name: kl, beta: 0.1}]"),
    (SMALL.replace("grpo", "[grpo]"), "algorithm (recipe.yaml line 4)", "as in `algorithm: grpo`"),
    (SMALL.replace("addition", "\nname: x"), "environment (recipe.yaml line 2)", "`environment:` is empty"),
    (SMALL.replace("addition", "{digits: 3}"), "environment.name (recipe.yaml line 2)", "`{name: …, digits: …}`"),
    (SMALL.replace("[accuracy,", "[{accuracy: 1},"), "rewards[0].name", "`{name: accuracy}` if that is the name"),
    (SMALL.replace("weight: 0.1", "weight: "), "rewards[1].weight", "it is empty"),
    (SMALL + "evaluation: {every: 2.5}\n", "evaluation.every", "hint: 2 or 3"),
    (SMALL.replace("addition", "{name: ''}"), "environment.name", "at least one character"),
    (SMALL.replace("[accuracy,", "[3,"), "rewards[0] (recipe.yaml line 3)", "got the number 3"),
    (SMALL.replace("rewards: [accuracy, {", "rewards: {").replace("}]", "}"), "rewards", "write a list: `- {name: …}`"),
    (SMALL.replace("hidden: 64", "lora: 16"), "model.lora (recipe.yaml line 1)", "expected a mapping"),
    (SMALL.replace("grpo", "{name: grpo, shapers: overlong}"), "algorithm.shapers", "expected a list"),
    (SMALL.replace("grpo", "{name: grpo, penalties: [{name: kl, bata: 0.1}]}"), "algorithm.penalties[0].beta",
        "found 'bata': did you mean 'beta'?"),
    (SMALL + "stages: []\n", "stages (recipe.yaml line 6)", "expected 1 or more entries, got a list"),
    # missing things
    (SMALL.replace("environment: addition\n", ""), "environment (recipe.yaml line 1)", "as in `environment: addition`"),
    (SMALL.replace("name: scratch, ", ""), "model.name (recipe.yaml line 1)", "the first stage requires a model"),
    (SMALL + "stages:\n  - {model: {lora: {r: 1}}}\n", "stages[0].model.name", "as a whole or not at all"),
    (SMALL + "stages:\n  - {}\n  - {model: other/model}\n", "stages[1].model.name",
        "starts from the model of the stage before"),
    (SMALL + "plugins: {load: [./mnie.py]}\n", "plugins.load[0] (recipe.yaml line 6)", "did you mean 'mine.py'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "words"), WRONG, ids=[place for _, place, _ in WRONG])
def test_invalid_recipe_is_reported_with_place_and_fix(text: str, place: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, text)
    assert place in str(caught.value).partition("\n")[0]
    assert words in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "none", "grpo", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "as", "0", "kl", "beta", "lora", *SECTIONS, *SLOTS]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
keys = st.sampled_from(["name", "plugins", "stages", *SECTIONS])


@settings(max_examples=4 * settings().max_examples)
@given(
    st.dictionaries(keys, anything, max_size=6),
    st.lists(st.tuples(st.lists(keys | st.sampled_from(["0", "x"]), min_size=1, max_size=4), anything), max_size=2),
)
def test_any_yaml_is_a_recipe_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], overrides: list[tuple[list[str], Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(dump({"model": "m", "environment": "e", "algorithm": "a", **data}))
    try:
        found = recipe.load(path, [f"{'.'.join(way)}={dump([value])[2:]}" for way, value in overrides])
    except RecipeError:
        return
    assert len(found.bodies) == len(found.stage_paths) > 0
    assert all(body["environment"]["name"] and body["algorithm"]["name"] for body in found.bodies)


RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, heads: 2, intermediate: 32}
environment: {name: dataset, path: PATH}
rewards: [accuracy]
algorithm: {name: grpo, rollouts: [{name: replay, num_completions: 1, path: ./earlier.jsonl}]}
trainer: {max_steps: 1, num_generations: 2, per_device_train_batch_size: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a recipe with its data; the working directory has other data of the same name."""
    for name in ("recipes", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.jsonl").write_text(f'{{"prompt": "{len(name)}+1=", "answer": "1"}}\n' * 4)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "recipes"


def stages(folder: Path, path: str, *overrides: str, build: bool = False) -> Any:
    (folder / "r.yaml").write_text(RECIPE.replace("PATH", path))
    recipe = load(folder / "r.yaml", overrides)
    return recipe, compose(recipe, Registry(), build_environment=build)


@pytest.mark.parametrize("path", ["./data.jsonl", "data.jsonl", "../recipes/data.jsonl"])
def test_relative_to_the_recipe(folder: Path, path: str) -> None:
    recipe, (stage,) = stages(folder, path)
    body = stage.body
    assert body["environment"]["path"] == str(folder / "data.jsonl")
    assert body["algorithm"]["rollouts"][0]["path"] == str(folder / "earlier.jsonl")
    assert absolute_settings({"deepspeed": "./zero.json", "optim": "adamw"}, lambda name: folder) == {
        "deepspeed": str(folder / "zero.json"),
        "optim": "adamw",
    }
    assert resolved([stage], recipe)["environment"]["path"] == str(folder / "data.jsonl"), "a run folder loads anywhere"


def test_on_the_command_line_relative_to_the_working_directory(folder: Path) -> None:
    _, (stage,) = stages(folder, "./data.jsonl", "environment.path=./data.jsonl")
    assert stage.body["environment"]["path"] == str(folder.parent / "elsewhere" / "data.jsonl")


def test_a_hub_name_stays(folder: Path) -> None:
    _, (stage,) = stages(folder, "openai/gsm8k")
    assert stage.body["environment"]["path"] == "openai/gsm8k"


def test_error_of_a_missing_file_names_the_searched_folder(folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"there is no file or folder '.*/recipes/dota.jsonl'(?s:.*)data.jsonl"):
        stages(folder, "./dota.jsonl", "algorithm=grpo", build=True)


def test_a_pipe_is_no_data_file_and_no_recipe(folder: Path) -> None:
    """Without a writer reading it would wait for ever."""
    os.mkfifo(folder / "pipe.yaml")
    with pytest.raises(RecipeError, match="got the pipe, socket or device"):
        stages(folder, "./pipe.yaml", build=True)
    with pytest.raises(RecipeError, match="expected a file, got a folder, pipe or device"):
        load(folder / "pipe.yaml")
