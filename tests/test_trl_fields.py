"""The table of TRL's config fields and the slots of an algorithm, used in both directions."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import trl
from rlm_lab.explain import explain
from rlm_lab.explain_text import render

from rlm_plugins.api.arguments import add
from rlm_plugins.api.trainer_arguments import algorithm_of_config, converted
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import of_mapping
from rlm_plugins.recipe.resolve import plans_of
from rlm_plugins.recipe.trainer_settings import ARGUMENTS, check
from rlm_plugins.recipe.trl_fields import CHOICES, GRPO, KNOBS, RLOO, algorithm_of, decided, fields_of, slot_of
from rlm_plugins.registry import Registry

CONFIGS = {GRPO: trl.GRPOConfig, RLOO: trl.RLOOConfig}
VALUES: dict[tuple[str, str], list[Any]] = {
    (GRPO, "scale_rewards"): ["group", "batch", "none"],
    (GRPO, "epsilon_high"): [None, 0.28, 5.0],
    (GRPO, "delta"): [None, 1.5, 4.0],
    **{(GRPO, f"sapo_temperature_{sign}"): [0.05, 1.0, 2.0] for sign in ("pos", "neg")},
    (GRPO, "off_policy_mask_threshold"): [None, 0.0, 0.5],
    (GRPO, "use_bias_correction_kl"): [True, False],
    (GRPO, "entropy_coef_min"): [0.0, 0.25],
    (GRPO, "entropy_coef_max"): [0.75, 1.0],
    (RLOO, "normalize_advantages"): [True, False],
    (RLOO, "reward_clip_range"): [None, (-1.0, 2.0)],
    (RLOO, "epsilon_high"): [None, 0.28],
    **{(choice.config, choice.field): list(choice.parts) for choice in CHOICES},
}
"""Values of each field; of other fields these four."""
NUMBERS = [0.0, 0.25, 0.75, 1.0]
RECIPE = {"model": "scratch", "environment": "addition", "rewards": ["accuracy"]}


def defaults(config: str) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(CONFIGS[config]) if f.name in decided(config)}


def base(config: str, field: str) -> list[dict[str, Any]]:
    """Return configs in which the field has an effect: one for each part with this knob."""
    parts = [row.part for row in KNOBS if (row.config, row.field) == (config, field)]
    needed: dict[str, dict[str, Any]] = {
        "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
        "sapo": {"loss_type": "sapo"},
        "vespo": {"loss_type": "vespo"},
        "kl": {"beta": 0.1},
        "adaptive_entropy": {"use_adaptive_entropy": True, "entropy_coef": 0.5},
    }
    return [defaults(config) | needed.get(part, {}) for part in parts or [""]]


CASES = [
    (config, field, value, number)
    for config in CONFIGS
    for field in decided(config)
    for value in VALUES.get((config, field), NUMBERS)
    for number in range(len(base(config, field)))
]


@pytest.mark.parametrize(("config", "field", "value", "number"), CASES)
def test_every_value_of_every_field_is_restored(config: str, field: str, value: Any, number: int) -> None:
    """Also from the composed algorithm, whose names, knobs and values the registry accepts."""
    values = base(config, field)[number] | {field: value}
    args, registry = type("Config", (), dict(values))(), Registry()
    if field == "epsilon_high" and values.get("loss_type") == "cispo" and value is None:
        values |= {"epsilon": 0.2}  # TRL uses epsilon as the cap then
        value = 0.2
    back = fields_of(config, algorithm_of(config, values))
    assert back[field] == pytest.approx(value) if isinstance(value, float) else back[field] == value
    for other in back:
        if other != field and not (other == "epsilon_high" and values["epsilon_high"] is None):
            assert back[other] == pytest.approx(values[other]), other
    own = {"name": add(registry, "algorithm", algorithm_of_config(config, args, {"accuracy": 1.0}), "own")}
    (plan,) = plans_of(of_mapping({**RECIPE, "algorithm": own}), registry)
    back = fields_of(config, plan.stage.body["algorithm"])
    if values.get("loss_type") != "cispo" or args.epsilon_high is not None:
        listed = list(value) if isinstance(value, tuple) else value
        assert back[field] == pytest.approx(value) if isinstance(value, float) else back[field] in (value, listed)


def test_fields_that_the_table_decides_exist_in_trl() -> None:
    for config, kind in CONFIGS.items():
        assert set(decided(config)) <= {f.name for f in dataclasses.fields(kind)}


def test_an_algorithm_without_counterpart_says_nothing_about_its_field() -> None:
    slots = algorithm_of(GRPO, defaults(GRPO)) | {"policy_loss": {"name": "reinforce"}}
    assert not {"loss_type", "epsilon", "delta"} & set(fields_of(GRPO, slots))


@pytest.mark.parametrize("config", CONFIGS)
def test_explain_shows_every_row(config: str) -> None:
    registry = Registry()
    for field in decided(config):
        (text,) = [render(entry) for entry in explain(f"setting:{field}", registry)]
        rows = [row for row in KNOBS if (row.config, row.field) == (config, field)]
        values = [
            value for choice in CHOICES if (choice.config, choice.field) == (config, field) for value in choice.parts
        ]
        assert all(row.address in " ".join(text.split()) for row in rows)
        assert all(f"{config}.{field}: {value}" in text for value in values)
        assert slot_of(config, field)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_other_field_reaches_the_trainer_unchanged(config: str) -> None:
    (plan,) = plans_of(of_mapping({**RECIPE, "algorithm": "dr_grpo"}), Registry())
    names = [f.name for f in dataclasses.fields(CONFIGS[config])]
    args = object.__new__(CONFIGS[config])
    args.__dict__.update({name: object() for name in names} | {"reward_weights": None})
    fields_of_trainer = vars(converted(args, plan, {}))
    changed = {name for name in names if fields_of_trainer[name] is not vars(args)[name]}
    assert changed == set(names) & {*decided(GRPO)}, "the equation decides these, so they have TRL's defaults"


def test_each_argument_of_trls_trainer_has_its_place_in_a_recipe() -> None:
    given = set(inspect.signature(trl.GRPOTrainer.__init__).parameters) - {"self", "model", "args"}
    fields = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
    assert given - fields == set(ARGUMENTS)
    with pytest.raises(RecipeError) as error:
        check(trl.GRPOConfig, {"peft_config": 1}, "trainer")
    assert "lora" in error.value.hint
