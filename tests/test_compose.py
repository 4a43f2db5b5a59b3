"""Checks of composed recipes: parts of every slot, examples of an environment, and the resulting stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe import document as recipe
from rlm_plugins.recipe.compose import compose, explain_origins, resolved
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.registry import Registry
from rlm_plugins.specs import SLOTS
from rlm_plugins.stage import Stage

BASE = """\
model: scratch
environment: {name: addition, train_rows: 8, test_rows: 2}
rewards: [accuracy, {name: format, weight: 0.1}]
algorithm: grpo
trainer: {learning_rate: 1e-6}
"""
TWO_STAGES = """\
environment: {name: addition, train_rows: 8, test_rows: 2}
rewards: [accuracy]
stages:
  - {name: warm-up, model: scratch, algorithm: sft}
  - {model: {lora: {r: 4}}, algorithm: {name: dapo, sampler: in_order}, evaluation: null}
"""
ODD_PARTS = Path(__file__).parent / "invalid_parts.py"


def run(folder: Path, text: str, *overrides: str, build_environment: bool = True) -> tuple[list[Stage], Recipe]:
    path = folder / "recipe.yaml"
    path.write_text(f"{text}plugins: {{load: [{ODD_PARTS}]}}\n")
    found = recipe.load(path, overrides)
    return compose(found, Registry(found.load, found.block), build_environment=build_environment), found


def body(folder: Path, text: str, *overrides: str) -> Any:
    return run(folder, text, *overrides, build_environment=False)[0][0].body


# ------------------------------------------------------------------ right recipes


def test_a_recipe_becomes_a_stage(tmp_path: Path) -> None:
    (stage,), _ = run(tmp_path, BASE)
    assert stage.name == "01-grpo"
    assert stage.equation is not None
    assert stage.equation.policy_loss.part.name == "clip"
    assert [penalty.beta for penalty in stage.equation.penalties] == [0.04]
    assert [(reward.label, reward.weight) for reward in stage.rewards] == [("accuracy", 1.0), ("format", 0.1)]
    assert stage.settings == {"learning_rate": 1e-6}
    assert len(stage.environment_spec.train) == 8
    assert stage.evaluation is not None
    assert stage.evaluation.metric == "accuracy"
    assert stage.lora is None
    assert stage.source.config.hidden_size == 128
    assert list(stage.body["algorithm"]) == ["name", *SLOTS]


def test_stages_share_an_environment_and_start_from_the_first_model(tmp_path: Path) -> None:
    (first, second), _ = run(tmp_path, TWO_STAGES)
    assert (first.name, second.name) == ("01-warm-up", "02-dapo")
    assert first.environment_spec is second.environment_spec
    assert first.source is second.source
    assert first.equation is None
    assert second.equation is not None
    assert second.lora == {"r": 4}
    assert first.evaluation is not None
    assert second.evaluation is None
    assert second.sampler is not None
    assert first.body["model"]["name"] == "scratch"
    assert second.body["model"] == {"lora": {"r": 4}}


def test_without_building_nothing_is_built(tmp_path: Path) -> None:
    (stage,), _ = run(
        tmp_path, BASE.replace("addition, train_rows: 8, test_rows: 2", "world, kind: raises"), build_environment=False
    )
    assert stage.environment_spec.train == ()
    with pytest.raises(Exception, match="this run has no weights"):
        stage.source.load()


# ------------------------------------------------------------------ rows, slot by slot

SLOT_CASES: list[tuple[list[str], str, Any]] = [
    (["algorithm.policy_loss.epsilon=0.3"], "policy_loss", {"name": "clip", "epsilon": 0.3}),
    (["algorithm.name=dapo", "algorithm.policy_loss=clip"], "policy_loss", {"epsilon_high": 0.28}),  # keeps its knobs
    (["algorithm.policy_loss=cispo"], "policy_loss", {"name": "cispo", "epsilon_high": 4.0}),
    (["algorithm=dr_grpo", "algorithm.advantage=median"], "advantage", {"name": "invalid_parts/median", "trim": 0.1}),
    (["algorithm.advantage={name: median, window: [3, 4]}"], "advantage", {"window": [3, 4]}),
    (["algorithm.penalties=null"], "penalties", []),
    (["algorithm.penalties.kl.estimator=k2"], "penalties", [{"name": "kl", "beta": 0.04, "estimator": "k2"}]),
    (["algorithm.filters=[nonzero_std]"], "filters", [{"name": "nonzero_std"}]),
]


@pytest.mark.parametrize(("overrides", "slot", "expected"), SLOT_CASES)
def test_algorithm_is_overridden_slot_by_slot(overrides: list[str], slot: str, expected: Any, tmp_path: Path) -> None:
    actual = body(tmp_path, BASE, *overrides)["algorithm"][slot]
    listed = (actual, expected) if isinstance(expected, list) else ([actual], [expected])
    assert len(listed[0]) == len(listed[1])
    for entry, wanted in zip(*listed, strict=True):
        assert {key: entry[key] for key in wanted} == wanted


def test_a_yaml_mapping_in_a_list_slot_means_the_same_as_an_override(tmp_path: Path) -> None:
    text = BASE.replace("algorithm: grpo", "algorithm: {name: grpo, penalties: {kl: {beta: 0.1}}}")
    assert body(tmp_path, text) == body(tmp_path, BASE, "algorithm.penalties.0.beta=0.1")


# ------------------------------------------------------------------ models


def test_a_checkpoint_may_be_named_where_a_part_could_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)  # an override names it relative to the working directory
    hub = body(tmp_path, BASE, "model=Qwen/Qwen3-0.6B", "model.dtype=float32")["model"]
    assert (hub["name"], hub["path"], hub["dtype"]) == ("pretrained", "Qwen/Qwen3-0.6B", "float32")
    for name in ("folder", "./folder", str(tmp_path / "folder")):
        beside = body(tmp_path, BASE, f"model={name}")["model"]
        assert (beside["name"], beside["path"]) == ("pretrained", str((tmp_path / "folder").resolve()))
    model = body(tmp_path, BASE, "model={name: pretrained, path: gpt2}")["model"]
    assert (model["name"], model["path"]) == ("pretrained", "gpt2")
    assert body(tmp_path, BASE, "model=builtin/scratch")["model"]["name"] == "scratch"


# ------------------------------------------------------------------ wrong recipes: one table

INVALID = yaml.safe_load((Path(__file__).parent / "data/invalid_recipes.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", INVALID, ids=[" ".join(case["overrides"]) for case in INVALID])
def test_invalid_recipe_is_reported_with_place_and_fix(case: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        run(tmp_path, BASE, *case["overrides"])
    assert str(caught.value).startswith(case["place"])
    for part in case["words"].split(" | "):
        assert part in str(caught.value)


def test_error_in_a_stage_names_the_stage(tmp_path: Path) -> None:
    cases = {
        "stages.1.algorithm.advantage=gae": "stages[1].algorithm.advantage (command line)",
        "stages.1.environment.digit=3": "stages[1].environment.digit (command line)",
        "stages.0.model.hidden=7": "stages[0].model.hidden (command line)",
        "stages.1.model.lora.r=0": "stages[1].model.lora.r (command line)",
        "stages.1.trainer.num_generations=3": "stages[1].trainer.num_generations (command line)",
        "rewards=[accuracy, judge]": "stages[0].rewards[1] (command line)",
    }
    for override, place in cases.items():
        with pytest.raises(RecipeError) as caught:
            run(tmp_path, TWO_STAGES, override)
        assert str(caught.value).startswith(place), override


RIGHT = [
    ["environment={name: world, kind: chat}", "rewards=[judge, old_style]"],
    ["environment={name: world, kind: stream}", "rewards=[judge]"],
    ["environment={name: world, kind: few}", "algorithm=sleep", "rewards=[]"],
    ["environment={name: world, kind: few}", "rewards=[judge]"],  # one problem of eight answers
    ["algorithm.rollouts=[write]", "rewards=[judge]", "evaluation=null"],  # a rollouts part may add the column
    ["algorithm.rollouts=[write]", "algorithm.token_weights=[needs_engine]"],
    ["algorithm.advantage=welcomes_all"],
    ["rewards=[invalid_parts/brevity, {name: brevity, as: short, characters: 5}]", "evaluation.metric=short"],
    *([f"algorithm={row}", "trainer.num_generations=1"] for row in ("reinforce_pp", "spo", "ppo")),
    ["algorithm=pass_at_k", "algorithm.advantage.k=1", "trainer.num_generations=2"],
    ["algorithm.filters=[{name: nonzero_std, refill: 3}, {name: accuracy_band, refill: 3}, no_truncated_groups]"],
    ["algorithm.advantage={name: per_reward, weights: {accuracy: 2, format: 1}}"],
    ["callbacks=[{name: stop_at, score: 1.0, metric: format}, {name: keep_successes, reward: accuracy}]"],
]


@pytest.mark.parametrize("overrides", RIGHT, ids=" ".join)
def test_valid_recipe_equals_its_resolved_form(overrides: list[str], tmp_path: Path) -> None:
    stages, found = run(tmp_path, BASE, *overrides)
    again, document = reloaded(stages, found, tmp_path)
    assert [stage.body for stage in again] == [stage.body for stage in stages]
    assert document == resolved(stages, found)


# ------------------------------------------------------------------ anything

_SECTIONS = "model model.name model.lora model.lora.r environment environment.digits rewards rewards.0 rewards.0.as"
_MORE = (
    "algorithm algorithm.name algorithm.sampler algorithm.rollouts callbacks callbacks.0 evaluation name stages trainer"
)
_TRAINER = "num_generations max_steps generation_batch_size report_to optim"
ADDRESSES = st.sampled_from(
    [
        *_SECTIONS.split(),
        *_MORE.split(),
        *(f"trainer.{key}" for key in _TRAINER.split()),
        *(f"algorithm.{slot}{step}" for slot in SLOTS for step in ("", ".name", ".0", ".0.name", ".kl.beta", ".eps")),
    ]
)
_WORDS = "grpo rloo sft kl clip median addition scratch accuracy none null 0 -1 1.5 true 'x' '' ./x a/b /clip clip/"
_LISTS = ["[]", "{}", "[1]", "[kl]", "[[[]]]", "[null]", "builtin/clip", "cosine", "9999999999999999999"]
_MIXED = ["[{name: kl, beta: 1}]", "{name: 3}", "[format, format]", "{a: {b: [c]}}"]
VALUES = st.sampled_from([*_WORDS.split(), *_LISTS, *_MIXED])


@pytest.fixture(scope="module")
def plugin_registry() -> Registry:
    return Registry([ODD_PARTS])


@settings(max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(ADDRESSES, VALUES), min_size=1, max_size=3))
def test_any_override_is_run_or_refused(
    tmp_path_factory: pytest.TempPathFactory, plugin_registry: Registry, overrides: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(BASE)
    try:
        found = recipe.load(path, ["=".join(pair) for pair in overrides])
        stages = compose(found, plugin_registry, build_environment=False)
    except RecipeError:
        return
    path.write_text(dump(resolved(stages, found)))
    again = compose(recipe.load(path), plugin_registry, build_environment=False)
    assert [stage.body for stage in again] == [stage.body for stage in stages]


# ------------------------------------------------------------------ the way back


def reloaded(stages: list[Stage], found: Recipe, folder: Path) -> tuple[list[Stage], dict[str, Any]]:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "resolved.yaml").write_text(dump(resolved(stages, found)))
    back = recipe.load(elsewhere / "resolved.yaml")
    again = compose(back, Registry(back.load, back.block))
    return again, resolved(again, back)


def test_stages_survive_too(tmp_path: Path) -> None:
    stages, found = run(tmp_path, TWO_STAGES, "stages.1.trainer.num_generations=4", "name=two")
    again, document = reloaded(stages, found, tmp_path)
    assert [stage.name for stage in again] == ["01-warm-up", "02-dapo"]
    assert [stage.settings for stage in again] == [{}, {"num_generations": 4}]
    assert [stage.evaluation for stage in again] == [stage.evaluation for stage in stages]
    assert document["name"] == "two"
    assert document["plugins"] == {"load": [str(ODD_PARTS)]}


def test_every_value_has_an_origin(tmp_path: Path) -> None:
    text = BASE.replace("algorithm: grpo", "algorithm: {name: dapo, policy_loss: {epsilon: 0.1}}")
    overrides = ["algorithm.filters.0.reward=accuracy", "environment.digits=2", "model.lora={r: 4}"]
    stages, found = run(tmp_path, text, *overrides)
    origins = {
        address: (value, origin) for address, value, origin in map(dict.values, explain_origins(found, stages[0], ()))
    }
    assert origins["environment.name"] == ("addition", "recipe.yaml line 2")
    assert origins["environment.digits"] == (2, "command line")
    assert origins["environment.seed"] == (0, "default of addition")
    assert origins["rewards[1].weight"] == (0.1, "recipe.yaml line 3")
    assert origins["rewards[0].weight"] == (1.0, "default")
    assert origins["algorithm.name"] == ("dapo", "recipe.yaml line 4")
    assert origins["algorithm.policy_loss.epsilon"] == (0.1, "recipe.yaml line 4")
    assert origins["algorithm.policy_loss.epsilon_high"] == (0.28, "algorithm dapo")
    assert origins["algorithm.policy_loss.delta"] == (None, "default of clip")
    assert origins["algorithm.filters[0].name"] == ("nonzero_std", "algorithm dapo")
    assert origins["algorithm.filters[0].reward"] == ("accuracy", "command line")
    assert origins["algorithm.penalties"] == ([], "algorithm dapo")
    assert origins["model.lora.r"] == (4, "command line")
    assert origins["model.name"] == ("scratch", "recipe.yaml line 1")
    assert origins["trainer.learning_rate"] == (1e-6, "recipe.yaml line 5")
    assert origins["evaluation.metric"] == ("accuracy", "the first reward")
    assert origins["evaluation.every"] == (0, "default")
    assert not [address for address, (_, origin) in origins.items() if not origin]


def test_origins_of_stages_name_the_line_they_were_inherited_from(tmp_path: Path) -> None:
    stages, found = run(tmp_path, TWO_STAGES, build_environment=False)
    values = [explain_origins(found, *one) for one in zip(stages, found.stage_paths, strict=True)]
    origins = {value["path"]: value["origin"] for of_stage in values for value in of_stage}
    assert (
        origins["stages[0].environment.train_rows"]
        == origins["stages[1].environment.train_rows"]
        == "recipe.yaml line 1"
    )
    assert origins["stages[1].model.lora.r"] == "recipe.yaml line 5"
    assert origins["stages[1].algorithm.filters[0].name"] == "algorithm dapo"
