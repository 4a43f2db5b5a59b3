"""Validation of `trainer:` and `lora:` as fields of a config class: the third of the three checks.

TRL accepts ``learning_rate: "1e-6"``, ``.nan`` or ``-1`` silently, and fails, or trains nothing, much later.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
import types
import warnings
from collections.abc import Mapping
from typing import Any

import pydantic

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected
from rlm_plugins.recipe.batch_arithmetic import generation
from rlm_plugins.recipe.installed import require
from rlm_plugins.recipe.ranges import RANGES, problem
from rlm_plugins.recipe.setting_values import check_setting
from rlm_plugins.recipe.type_hints import validate
from rlm_plugins.registry.setting import Setting
from rlm_plugins.registry.validation_errors import FieldError, address_text, most_specific_error

_NEVER_NULL = ("num_generations",)

NOT_IN_A_RECIPE = {
    "peft_type": "an adapter beside the policy's is LoRA",
    "inference_mode": "the adapter is trained",
    "base_model_name_or_path": "the base is the model of the same section",
}
"""Fields of LoraConfig that are set by the library, each with the reason."""
NOT_IN_A_CRITIC = {
    **NOT_IN_A_RECIPE,
    "bias": "the base of a shared critic stays frozen",
    "modules_to_save": "the value head is always trained and saved; the base of a shared critic stays frozen",
}
"""Fields of LoraConfig that a shared critic cannot have: two of them would also train its base."""

_PYTHON = "`rlm_plugins.GRPOTrainer` takes it, in Python"
ARGUMENTS = {
    "reward_funcs": "`rewards:`",
    "reward_processing_classes": f"the reward `reward_model` loads the tokenizer of its model; {_PYTHON}",
    "train_dataset": "`environment: {name: dataset, train_path: …}`",
    "eval_dataset": "`environment: {name: dataset, test_path: …}`, and `evaluation: {suite: …}` for further ones",
    "processing_class": "it is loaded with `model:`",
    "peft_config": "`model: {lora: …}`",
    "quantization_config": "`model: {quantization: …}`",
    "callbacks": "`callbacks:` beside `trainer:`",
    "optimizers": f"`optim` and `lr_scheduler_type`; {_PYTHON}",
    "tools": f"an environment with tools; {_PYTHON}",
    "environment_factory": f"`environment:`; {_PYTHON}",
    "rollout_func": f"`algorithm: {{rollouts: …}}`; {_PYTHON}",
}
"""Arguments of TRL's trainers that are no fields of its config: where a recipe has them."""


def check(
    config_class: type,
    values: Mapping[str, Any],
    where: str,
    *,
    refused: Mapping[str, str] = types.MappingProxyType({}),
    project_defaults: Mapping[str, Any] = types.MappingProxyType({}),
    added: Mapping[str, Setting] = types.MappingProxyType({}),
) -> Any:
    """Check `values` against a config class: names, types, ranges, then the checks of the class itself.

    Args:
        config_class: A dataclass, such as ``trl.GRPOConfig``.
        values: The settings of a recipe.
        where: Their address in the recipe, for errors.
        refused: Field → why it cannot be set here.
        project_defaults: Defaults that replace those of the class.
        added: Settings of packages among the values, by name.

    Returns:
        The config, constructed once with a temporary ``output_dir``.

    Raises:
        RecipeError: The first wrong setting.
    """
    for key, setting in added.items():
        setting.check_value(key, values[key], f"{where}.{key}")
    settings_of_packages = {key: values[key] for key in added}
    values = {key: value for key, value in values.items() if key not in added}
    fields = {f.name: f for f in dataclasses.fields(config_class) if f.init}
    for key in values:
        _check_name(key, fields, config_class, f"{where}.{key}", refused)
    try:
        validate(config_class, values)
    except pydantic.ValidationError as error:
        raise _error(most_specific_error(error.errors(), values), where) from None
    if values.get("deepspeed"):
        require("deepspeed", f"{where}.deepspeed")
    for key, value in values.items():
        _check_range(key, value, f"{where}.{key}")
        check_setting(key, value, f"{where}.{key}", values)
    if str(values.get("save_strategy")) == "best":
        hint = "`evaluation: {keep: best, every: …}` keeps the best model; `save_strategy: steps` saves checkpoints"
        raise RecipeError("`save_strategy: best` is not supported", where=f"{where}.save_strategy", hint=hint)
    if values.get("push_to_hub") and not values.get("hub_model_id"):
        hint = "`hub_model_id: OWNER/NAME`, the repository that receives the result"
        raise RecipeError("`push_to_hub` requires `hub_model_id`", where=f"{where}.push_to_hub", hint=hint)
    replaced_defaults = {key: value for key, value in project_defaults.items() if key in fields}
    defaults = {name: f.default for name, f in fields.items() if f.default is not dataclasses.MISSING}
    settings = {**defaults, **replaced_defaults, **values}
    if plan := generation(settings):
        plan.check(where)
    if added:
        values = {**values, **settings_of_packages, "added": added}
    return _construct(config_class, {**replaced_defaults, **values}, where, "output_dir" in fields)


def _check_name(
    key: str, fields: Mapping[str, Any], config_class: type, where: str, refused: Mapping[str, str]
) -> None:
    if key in refused:
        raise RecipeError(f"`{key}` cannot be set here", where=where, hint=refused[key])
    if key not in fields:
        # our config classes only add fields to a class of TRL, which documents the others
        bases = (base for base in config_class.__mro__ if not base.__module__.startswith("rlm_plugins."))
        documented = next(base for base in bases if "__dataclass_fields__" in vars(base))
        title = f"{documented.__module__.partition('.')[0]}.{documented.__name__}"
        hint = ARGUMENTS.get(key) or nearest(key, [name for name in fields if name not in refused])
        raise RecipeError(f"unknown field '{key}' of {title}", where=where, allowed=f"the fields of {title}", hint=hint)


def _error(field_error: FieldError, where: str) -> RecipeError:
    """Return the error of a wrong value, or of a wrong key in a config inside the config."""
    address, key = where + address_text(field_error.address), field_error.address[-1]
    problems = {
        "value": field_error.problem,
        "unknown": f"unknown key '{key}'",
        "missing": f"the key '{key}' is missing",
    }
    return RecipeError(problems[field_error.kind], where=address, hint=field_error.hint)


def _check_range(key: str, value: Any, where: str) -> None:
    if value is None and key in _NEVER_NULL:
        raise RecipeError(expected(f"{RANGES[key].low:g} or more", value), where=where)
    text, hint = problem(key, value)
    if text:
        raise RecipeError(text, where=where, hint=hint)


def _construct(config_class: type, values: Mapping[str, Any], where: str, has_folder: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return config_class(**values, **({"output_dir": folder} if has_folder else {}))
        except RecipeError as error:
            address = where + error.where.removeprefix("trainer")
            raise RecipeError(error.problem, where=address, allowed=error.allowed, hint=error.hint) from None
        except Exception as error:
            mentioned = [key for key in values if re.search(rf"\b{re.escape(key)}\b", str(error))]
            address = f"{where}.{mentioned[0]}" if mentioned else where
            raise RecipeError(f"{config_class.__name__} refuses: {error}", where=address) from error
