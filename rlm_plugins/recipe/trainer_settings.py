"""Validation of `trainer:` and `lora:` as fields of a config class: the third of the three checks.

TRL accepts ``learning_rate: "1e-6"``, ``.nan`` or ``-1`` silently, and fails, or trains nothing, much later.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.util
import re
import tempfile
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import pydantic
import pydantic_core
import typing_extensions
from pydantic import Field

from rlm_plugins.equation.glossary import suggest
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch, transformers
from rlm_plugins.recipe.ranges import RANGES, generation
from rlm_plugins.registry.setting import FieldError, Setting, address_text, most_specific_error

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
    "train_dataset": "`environment: {name: dataset, path: …}`",
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
_EXACT = "a resumed run would not end like an uninterrupted one"
UNSUPPORTED = {
    "save_only_model: true": f"{_EXACT}: the state of the optimizer is in a checkpoint; `save_total_limit: 1` keeps "
    "one",
    "ignore_data_skip: true": f"{_EXACT}: it would train on the first examples again",
    "enable_jit_checkpoint: true": "SIGTERM saves a checkpoint anyway, and its handler is replaced by that of "
    "transformers",
    "save_strategy: best": "`evaluation: {keep: best, every: …}` keeps the best model; `save_strategy: steps` saves "
    "checkpoints",
}
"""Settings that TRL has and this project does not support, each with the reason or what to do."""


def check(
    config_class: type,
    values: Mapping[str, Any],
    where: str,
    *,
    refused: Mapping[str, str] = types.MappingProxyType({}),
    project_defaults: Mapping[str, Any] = types.MappingProxyType({}),
    added: Mapping[str, Setting] = types.MappingProxyType({}),
) -> Any:
    """Return the config of `values`, once its names, types and ranges and the class itself accept them.

    `refused` maps a field to the reason why it cannot be set here; `added` has the settings of packages by name. The
    config has a temporary ``output_dir``.
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
    for key, value in values.items():
        _check_value(key, value, f"{where}.{key}", values)
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
        hint = ARGUMENTS.get(key) or suggest(key, [name for name in fields if name not in refused])
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


def _check_value(key: str, value: Any, where: str, settings: Mapping[str, Any]) -> None:
    """Check that a value is none of those that the project does not support."""
    setting = f"{key}: {str(value).lower()}"
    if setting in UNSUPPORTED:
        raise RecipeError(f"`{setting}` is not supported", where=where, hint=UNSUPPORTED[setting])
    if key == "deepspeed" and value and importlib.util.find_spec("deepspeed") is None:
        raise RecipeError("deepspeed is not installed", where=where, hint="pip install deepspeed")
    if key == "generation_kwargs" and not settings.get("use_vllm"):
        _check_generation(value or {}, where)


def _construct(config_class: type, values: Mapping[str, Any], where: str, has_folder: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return config_class(**values, **({"output_dir": folder} if has_folder else {}))
        except RecipeError as error:
            raise error.at(where + error.where.removeprefix("trainer")) from None
        except Exception as error:
            mentioned = [key for key in values if re.search(rf"\b{re.escape(key)}\b", str(error))]
            address = f"{where}.{mentioned[0]}" if mentioned else where
            raise RecipeError(f"{config_class.__name__} refuses: {error}", where=address) from None


def _check_generation(values: Mapping[str, Any], where: str) -> None:
    fields = {key for key in vars(transformers.GenerationConfig()) if not key.startswith("_")}
    for key in values:
        if key not in fields:
            allowed = "the fields of transformers.GenerationConfig"
            raise RecipeError(
                f"unknown key {key!r}", where=f"{where}.{key}", allowed=allowed, hint=nearest(key, fields)
            )


_TRACKERS = {"azure_ml": "azureml-sdk", "comet_ml": "comet-ml", "dagshub": "dagshub mlflow", "flyte": "flytekit"}
"""Name in `report_to` → packages on PyPI, where they have another name."""


def check_installed(config: Any, where: str) -> None:
    """Check that the packages of a config are installed: TRL imports them after the weights are loaded."""
    if getattr(config, "use_liger_kernel", False) and importlib.util.find_spec("liger_kernel") is None:
        hint = "pip install liger-kernel, or leave the field out"
        raise RecipeError("liger-kernel is not installed", where=f"{where}.use_liger_kernel", hint=hint)
    for name in sorted({*(config.report_to or ())} - {"none", "all"}):
        _check_tracker(name, f"{where}.report_to")


def _check_tracker(name: str, where: str) -> None:
    """Check that transformers supports a tracker, and that its package is installed."""
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    available, supported = get_available_reporting_integrations(), sorted(INTEGRATION_TO_CALLBACK)
    if name in available:
        return
    problem, hint = f"'{name}' is not installed", f"pip install {_TRACKERS.get(name, name)}"
    if name not in supported:
        problem = f"unknown tracker '{name}'"
        hint = nearest(name, supported) or "`report_to: none`, or a callback of your own under `callbacks:`"
    raise RecipeError(problem, where=where, allowed=", ".join(["none", *available]), hint=hint)


def trainer_defaults() -> dict[str, Any]:
    """Return our defaults of settings: quiet, and float32 without an accelerator, where bf16 autocast is slower."""
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    return quiet if torch.accelerator.is_available() else {**quiet, "use_cpu": True, "bf16": False}


_CONFIG = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def validate(config_class: type, values: Mapping[str, Any]) -> None:
    """Check the names and types of `values`: whole numbers are numbers, nothing else is converted."""
    # As JSON, where strict mode takes a list for a tuple, a string for an enum, a mapping for a dataclass.
    _schema(config_class).validate_json(pydantic_core.to_json(dict(values), fallback=repr))


@functools.cache
def _schema(config_class: type) -> pydantic.TypeAdapter[Any]:
    hints = typing.get_type_hints(config_class)
    names = [f.name for f in dataclasses.fields(config_class) if f.init]
    fields = {name: RANGES.get(name) or _with_placeholders(without_loose_text(hints[name])) for name in names}
    make: Any = typing_extensions.TypedDict
    mapping = make(config_class.__name__, fields, total=False)
    mapping.__pydantic_config__ = _CONFIG
    return pydantic.TypeAdapter(mapping)


def without_loose_text(hint: Any) -> Any:
    """Return a hint without `str` beside an enum: ``SchedulerType | str`` means one of the scheduler types."""
    parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else ()
    if any(isinstance(part, type) and issubclass(part, enum.Enum) for part in parts):
        return typing.Union[tuple(part for part in parts if part is not str)]  # noqa: UP007
    return hint


def _with_placeholders(hint: Any) -> Any:
    """Return a hint whose literals take numbers: PEFT writes ``pissa_niter_[number of iters]``."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_with_placeholders, get_args(hint)))]  # noqa: UP007
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    templates = [choice for choice in choices if isinstance(choice, str) and "[" in choice]
    if not templates:
        return hint
    plain = tuple(choice for choice in choices if choice not in templates)
    patterns = [re.sub(r"\\\[.*?\\\]", r"\\d+", f"^{re.escape(template)}$") for template in templates]
    filled = [Annotated[str, Field(pattern=pattern)] for pattern in patterns]
    return typing.Union[(Literal[plain], *filled)]  # type: ignore[valid-type]


LORA, KEY = "LORA", "peft_type"
_INTO_WEIGHTS = "into the weights, from which later stages and `rlm eval` start"
_VIRTUAL = ("PREFIX_TUNING", "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "CPT", "CARTRIDGE")
_WHOLE = "PEFT cannot build it without weights, as `rlm check` and the memory estimate do"
REFUSED = {
    **dict.fromkeys(_VIRTUAL, f"its virtual tokens cannot be merged {_INTO_WEIGHTS}"),
    **dict.fromkeys(("BOFT", "FROD", "UNILORA"), _WHOLE),
    **dict.fromkeys(("LILY", "SHADOW"), f"PEFT cannot merge it {_INTO_WEIGHTS}"),
    "ADAPTION_PROMPT": f"its prompt cannot be merged {_INTO_WEIGHTS}",
    "ADALORA": "its ranks are chosen by a call after each step, which no trainer of TRL makes",
    "BEFT": "it trains biases, and cannot be merged into layers without them",
    "PVERA": "its weights are drawn anew in each forward pass, so a log-prob is not that of the sample",
    "XLORA": "it mixes adapters that are trained already",
    "POLY": "it needs a task for each example",
}
"""Kinds that cannot be trained here, each with the reason."""


def kind_of(lora: Mapping[str, Any] | None) -> str:
    """Return the kind of an adapter, in PEFT's upper case.

    >>> kind_of({"r": 8}), kind_of({"peft_type": "loha"})
    ('LORA', 'LOHA')
    """
    return str((lora or {}).get(KEY) or LORA).upper()


def config_class(lora: Mapping[str, Any] | None, where: str = "model.lora") -> Any:
    """Return the config class of PEFT for an adapter."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    classes = {kind.value: config for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    kind, where = kind_of(lora), f"{where}.{KEY}"
    if kind in REFUSED:
        raise RecipeError(f"an adapter of the kind '{kind}' cannot be trained: {REFUSED[kind]}", where=where)
    if kind not in classes:
        supported = sorted(set(classes) - set(REFUSED))
        raise RecipeError(
            f"unknown kind '{kind}'", where=where, allowed=", ".join(supported), hint=nearest(kind, supported)
        )
    return classes[kind]


def fields_of_adapter(lora: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the config class of an adapter, without its kind."""
    return {name: value for name, value in lora.items() if name != KEY}


def adapter_config(lora: Mapping[str, Any]) -> Any:
    """Return the config of an adapter."""
    return config_class(lora)(**{"task_type": "CAUSAL_LM", **fields_of_adapter(lora)})
