"""The JSON Schema: an editor marks what the checks refuse, as far as names, knobs and settings go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_lab.schema import recipe_schema

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import document as recipe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.sections import SECTIONS
from rlm_plugins.registry import Registry
from rlm_plugins.specs import SLOTS

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def schema() -> Any:
    return recipe_schema(Registry())


def accepts(schema: Any, text: str) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(yaml_strict.parse(text, "recipe.yaml").data)


BASE = """\
model: {name: scratch, hidden: 64, lora: {r: 16, target_modules: all-linear}}
environment: {name: addition, digits: 3}
rewards: [accuracy, {name: format, weight: 0.1}, {name: length, as: short, weight: -0.01}]
algorithm: {name: grpo, sampler: in_order, policy_loss: {epsilon: 0.3}, penalties: [{name: kl, beta: 0.01}]}
trainer: {learning_rate: 1e-6, num_generations: 8, lr_scheduler_type: cosine}
callbacks: [stop_at_zero_advantage]
evaluation: {metric: short, every: 20}
plugins: {load: [./mine.py], block: [other]}
"""
SCHEDULED = BASE.replace("{epsilon: 0.3}", "{epsilon: {from: 0.2, to: 0.3, over: 2}}").replace(
    "beta: 0.01", "beta: {from: 0.1, to: 0, over: 4, shape: cosine, after: 1}"
)
RIGHT = [
    BASE,
    BASE.replace("{name: scratch, hidden: 64, lora: {r: 16, target_modules: all-linear}}", "Qwen/Qwen3-0.6B"),
    BASE.replace("{name: scratch, hidden: 64,", "{name: Qwen/Qwen3-0.6B, dtype: float32,"),
    BASE.replace("{name: scratch, hidden: 64,", "{name: builtin/scratch, hidden: 64,"),
    BASE.replace("{name: grpo, policy_loss: {epsilon: 0.3}, penalties: [{name: kl, beta: 0.01}]}", "dapo"),
    BASE.replace(
        "penalties: [{name: kl, beta: 0.01}]", "penalties: {kl: {beta: 0.1}}, importance: none, filters: null"
    ),
    BASE.replace("{epsilon: 0.3}", "{name: cispo, epsilon_high: 3.0}"),
    BASE.replace("{epsilon: 0.3}", "builtin/cispo"),
    "environment: addition\nstages:\n  - {name: a, model: scratch, algorithm: sft, trainer: {packing: true}}\n"
    "  - {model: {lora: {r: 4}}, algorithm: grpo, rewards: [accuracy], evaluation: null}\n",
]
WRONG = {
    BASE + "enviroment: x\n": "unknown section",
    BASE.replace("hidden: 64", "hiden: 64"): "unknown knob of a model",
    BASE.replace("hidden: 64", "hidden: '64'"): "text for a number",
    BASE.replace("r: 16", "rank: 16"): "unknown field of LoraConfig",
    BASE.replace("digits: 3", "digit: 3"): "unknown knob of an environment",
    BASE.replace("{name: addition, digits: 3}", "{digits: 3}"): "environment without a name",
    BASE.replace("name: addition, digits: 3", "name: successes"): "a knob without default left out",
    BASE.replace("[accuracy,", "[acuracy,"): "unknown reward",
    BASE.replace("rewards: [accuracy,", "rewards: {a: [accuracy,").replace("-0.01}]", "-0.01}]}"): "rewards no list",
    BASE.replace("name: grpo", "name: grop"): "unknown row",
    BASE.replace("epsilon: 0.3", "epsilom: 0.3"): "unknown knob of the row's part",
    BASE.replace("epsilon: 0.3", "name: cispo, epsilon: 0.3"): "a knob of another part",
    BASE.replace("name: grpo,", "name: rloo, importance: {x: 1},"): "knobs for a part the row does not have",
    BASE.replace(", beta: 0.01", ""): "a penalty without beta",
    BASE.replace("learning_rate", "lerning_rate"): "unknown field of GRPOConfig",
    BASE.replace("num_generations: 8", "epsilon: 0.2"): "a field the equation decides",
    BASE.replace("num_generations: 8", "packing: true"): "a field of another engine",
    BASE.replace("every: 20", "evry: 20"): "unknown key of the evaluation",
    BASE + "name: ../x\n": "a name that is no folder",
    BASE + "stages: [{stages: []}]\n": "stages in a stage",
    BASE + "stages: [{algorithm: sft, trainer: {num_generations: 8}}]\n": "a field of another engine in a stage",
}


@pytest.mark.parametrize("text", RIGHT)
def test_right_recipes_are_valid(text: str, schema: Any) -> None:
    assert accepts(schema, text)


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_wrong_recipes_are_underlined_and_refused(text: str, schema: Any, tmp_path: Path) -> None:
    assert not accepts(schema, text)
    (tmp_path / "mine.py").write_text("")
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace(", block: [other]", ""))
    with pytest.raises(RecipeError):
        compose(recipe.load(path), Registry(), build_environment=False)


def test_the_recipes_of_the_repository_are_valid() -> None:
    recipes = sorted((ROOT / "recipes").rglob("*.yaml"))
    assert recipes
    packages = [ROOT / "tests" / "paper_packages.py"]
    shared = recipe_schema(Registry(packages))
    for path in recipes:
        found = recipe.load(path)
        own = recipe_schema(Registry([*packages, *found.load], found.block)) if found.load else shared
        assert accepts(own, path.read_text()), path


@pytest.mark.parametrize(
    ("section", "right"),
    [
        ({"kind": "head", "learning_rate": 1e-3, "warmup_steps": 2}, True),
        ({"learning_rate": {"from": 1e-3, "to": 0.0, "over": 3}, "lora": {"r": 4}}, True),
        ({"kind": "other"}, False),
        ({"learning_rate": -1.0}, False),
        ({"warmup": 2}, False),
    ],
)
def test_schema_contains_the_section(section: dict[str, Any], right: bool, schema: Any) -> None:
    text = yaml.safe_dump({**yaml.safe_load(BASE), "critic": section})
    assert accepts(schema, text) == right


def test_schema_contains_schedules(schema: Any) -> None:
    assert accepts(schema, SCHEDULED)
    assert not accepts(schema, SCHEDULED.replace("over: 2", "over: 0"))
    assert not accepts(schema, SCHEDULED.replace("shape: cosine", "shape: cos"))
    assert not accepts(schema, SCHEDULED.replace("hidden: 64", "hidden: {from: 1, to: 2, over: 3}"))


def test_every_section_and_slot_is_there(schema: Any) -> None:
    assert set(schema["properties"]) == {"name", *SECTIONS, *Registry().section_names(), "plugins", "stages"}
    assert set(schema["$defs"]["stage"]["properties"]) == {"name", *SECTIONS, *Registry().section_names()}
    table = schema["$defs"]["section.algorithm"]["anyOf"][1]["anyOf"][1]
    assert set(table["properties"]) == {"name", *SLOTS}


def test_every_part_is_offered_with_its_first_line(schema: Any) -> None:
    for part in Registry():
        key = {"rlm_policy_losses": "policy_loss", "rlm_rewards": "rewards"}.get(part.hook)
        if key:
            offered = {option.get("const"): option for option in schema["$defs"][f"name.{key}"]["anyOf"]}
            assert offered[part.name]["description"] == part.target.__doc__.partition("\n")[0]
    rows = {option.get("const"): option for option in schema["$defs"]["name.algorithm"]["anyOf"]}
    assert rows["grpo"]["description"].startswith("PPO's clip with the critic replaced")


def test_plugin_parts_have_both_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlm_plugins import hookimpl\n"
        "def loud(completions, *, volume: float = 1.0):\n    '''Loud is good.'''\n"
        "@hookimpl\ndef rlm_rewards():\n    return {'loud': loud}\n"
    )
    own = recipe_schema(Registry([tmp_path / "mine.py"]))
    for name in ("loud", "mine/loud"):
        text = BASE.replace("[accuracy,", f"[{{name: {name}, volume: 2.0}},")
        assert accepts(own, text)
        assert not accepts(own, text.replace("volume: 2.0", "volum: 2.0"))
