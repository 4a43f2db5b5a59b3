"""Checks of `trainer:` and `lora:` against config classes: small ones, then those of TRL and PEFT."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from trl import GRPOConfig, SFTConfig

from rlm_plugins.builtin.trainers import GRPO
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.ranges import Generation
from rlm_plugins.recipe.trainer_settings import check, check_installed, validate


@dataclass
class Config:
    """Substitute for a TRL config with checks of its own; `test_parts.py` has the errors of each type."""

    output_dir: str | None = None
    steps: int = 1
    learning_rate: float = 1e-6
    title: str = ""
    old_style: Optional[Union[int, str]] = None  # noqa: UP007, UP045
    names: list[str] = field(default_factory=list)
    secret: int = 0
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert self.output_dir is None or Path(self.output_dir).is_dir()
        if self.steps == 13:
            raise ValueError("steps must not be 13")


@pytest.mark.parametrize("values", [{}, {"steps": 3, "learning_rate": 1, "title": "x", "old_style": "x"}], ids=str)
def test_right_settings_make_the_config(values: dict[str, Any]) -> None:
    config = check(Config, values, "trainer", project_defaults={"title": "house", "unknown_to_this_class": 1})
    assert isinstance(config, Config)
    assert config.title == values.get("title", "house")
    assert config.learning_rate == values.get("learning_rate", 1e-6)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"learning_rat": 1}, "trainer.learning_rat", "did you mean 'learning_rate'?"),
    ({"made": 1}, "trainer.made", "unknown field 'made' of"),
    ({"learning_rate": "fast"}, "trainer.learning_rate", "expected a number, got the string 'fast'"),
    ({"learning_rate": -1}, "trainer.learning_rate", "expected 0 or more, got the number -1"),
    ({"old_style": 1.5}, "trainer.old_style", "expected a whole number or a string, got the number 1.5"),
    ({"names": ["a", 1]}, "trainer.names[1]", "expected a string, got the number 1"),
    ({"secret": 1}, "trainer.secret", "`secret` cannot be set here\n  hint: say it elsewhere"),
    ({"steps": 13}, "trainer.steps", "Config refuses: steps must not be 13"),
]


@pytest.mark.parametrize(("values", "place", "words"), WRONG, ids=[str(values) for values, _, _ in WRONG])
def test_invalid_settings_are_reported(values: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check(Config, values, "trainer", refused={"secret": "say it elsewhere"})
    assert caught.value.where == place
    assert words in str(caught.value)


def accepts(value: Any, hint: Any) -> bool:
    """Return True if a setting of that type accepts the value."""
    try:
        validate(dataclasses.make_dataclass("One", [("k", hint, None)]), {"k": value})
    except pydantic.ValidationError:
        return False
    return True


def test_placeholders_in_literals_are_filled() -> None:
    hint = bool | Literal["pissa", "pissa_niter_[number of iters]"]
    assert accepts("pissa_niter_16", hint)
    assert not accepts("pissa_niter_", hint)
    assert not accepts("pissa_niter_[number of iters]", hint)


@dataclass
class Grouped:
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    num_generations: int | None = 8


def test_whole_groups_pass() -> None:
    for values in (
        {},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 4, "steps_per_generation": 6},
        {"generation_batch_size": 64, "num_generations": 16},
    ):
        check(Grouped, values, "trainer")


BROKEN_GROUPS: list[tuple[dict[str, Any], str, list[str]]] = [
    (
        {"num_generations": 3},
        "trainer.num_generations",
        [
            "whole groups of num_generations 3, which 8 completions",
            "(per_device_train_batch_size 8 × gradient_accumulation_steps 1 × 1 process)",
            "num_generations 2, 4 or 8",
            "gradient_accumulation_steps: 3",
        ],
    ),
    (
        {"per_device_train_batch_size": 2, "steps_per_generation": 7, "num_generations": 4},
        "trainer.num_generations",
        ["steps_per_generation 7", "num_generations 2, 7 or 14", "steps_per_generation: 6 or 8"],
    ),
    ({"num_generations": 0}, "trainer.num_generations", ["expected 1 or more"]),
    ({"num_generations": None}, "trainer.num_generations", ["got null"]),
]


@pytest.mark.parametrize(("values", "place", "words"), BROKEN_GROUPS, ids=[str(v) for v, _, _ in BROKEN_GROUPS])
def test_invalid_group_size_is_explained(values: dict[str, Any], place: str, words: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        check(Grouped, values, "trainer")
    assert caught.value.where == place
    for part in words:
        assert part in str(caught.value)


def test_defaults_of_the_core_apply() -> None:
    with pytest.raises(RecipeError, match="which 6 completions"):
        check(Grouped, {}, "trainer", project_defaults={"per_device_train_batch_size": 6})


@pytest.mark.parametrize("key", ["per_device_train_batch_size", "num_generations", "gradient_accumulation_steps"])
def test_too_large_numbers_are_rejected_quickly(key: str) -> None:
    for absurd in (999_998, 10**18 + 1):
        with pytest.raises(RecipeError, match=r"whole groups|expected .* or less"):
            check(Grouped, {"num_generations": 7, key: absurd}, "trainer")


sizes = st.integers(1, 12)


@given(sizes, sizes, sizes, st.integers(2, 12))
def test_every_remedy_that_is_offered_works(micro: int, processes: int, pieces: int, group: int) -> None:
    plan = Generation(micro, processes, pieces, group, "pieces")
    if plan.completions % group == 0:
        plan.check("trainer")
        return
    with pytest.raises(RecipeError) as caught:
        plan.check("trainer")
    offered = caught.value.allowed.removeprefix("num_generations ").replace(" or ", ", ").split(", ")
    assert all(plan.completions % int(g) == 0 for g in offered if g)
    assert offered != [""] or plan.completions == 1
    steps = caught.value.hint.partition("pieces: ")[2].replace(" or ", ", ").split(", ")
    assert steps
    assert all(Generation(micro, processes, int(s), group, "pieces").completions % group == 0 for s in steps)


CPU = {"use_cpu": True, "bf16": False, "report_to": "none"}

GRPO_WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"lr_scheduler_type": "cosin"}, "trainer.lr_scheduler_type", "did you mean 'cosine'?"),
    ({"save_strategy": "never"}, "trainer.save_strategy", "steps"),
    ({"temperature": 0}, "trainer.temperature", "more than 0"),
    ({"num_generations": 3}, "trainer.num_generations", "num_generations 2, 4 or 8"),
    ({"generation_batch_size": 20, "num_generations": 4}, "trainer.generation_batch_size", "divisible by"),
    ({"generation_batch_size": 8, "steps_per_generation": 2}, "trainer.generation_batch_size", "at the same time"),
    ({"auto_find_batch_size": True}, "trainer.auto_find_batch_size", "not supported by GRPO"),
    ({"accelerator_config": "{bad"}, "trainer", "GRPOConfig refuses"),
    ({"loss_type": "dapo"}, "trainer.loss_type", "algorithm.aggregator"),
    ({"output_dir": "/tmp/x"}, "trainer.output_dir", "cannot be set here"),
    ({"max_steps": 0}, "trainer.max_steps", "expected 1 or more or -1, got the number 0"),
    ({"temperature": 101}, "trainer.temperature", "expected 100 or less, got the number 101"),
    ({"adam_beta2": 1.48}, "trainer.adam_beta2", "expected less than 1, got the number 1.48"),
]


@pytest.fixture(scope="module")
def grpo() -> Any:
    return GRPO()


@pytest.mark.parametrize(("values", "place", "words"), GRPO_WRONG, ids=[str(v) for v, _, _ in GRPO_WRONG])
def test_trl_settings(values: dict[str, Any], place: str, words: str, grpo: Any) -> None:
    with pytest.raises(RecipeError) as caught:
        check(grpo.config_class(), values, "trainer", refused=grpo.refused, project_defaults=CPU)
    assert caught.value.where == place
    assert words in str(caught.value)


def test_trl_accepts_valid_settings(grpo: Any) -> None:
    values = {
        "learning_rate": 1e-6,
        "num_generations": 4,
        "lr_scheduler_type": "constant",
        "report_to": ["tensorboard"],
        "chat_template_kwargs": {"enable_thinking": False},
        "warmup_steps": 3,
        "pad_to_multiple_of": 8,
    }
    config = check(grpo.config_class(), values, "trainer", refused=grpo.refused, project_defaults=CPU)
    assert config.learning_rate == 1e-6
    assert config.use_cpu
    ends = {"max_steps": -1, "temperature": 100, "top_p": 1, "seed": 2**32 - 1, "learning_rate": 0}
    config = check(grpo.config_class(), ends, "trainer", refused=grpo.refused, project_defaults=CPU)
    assert {key: getattr(config, key) for key in ends} == ends, "a range includes its ends"


def test_every_default_of_trl_fits_its_own_annotation(grpo: Any) -> None:
    for config_class in (grpo.config_class(), SFTConfig):
        for f in dataclasses.fields(config_class):
            if f.init and f.default not in (dataclasses.MISSING, ""):
                validate(config_class, {f.name: f.default})


LORA_WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"rank": 16}, "model.lora.rank", "unknown field 'rank' of peft.LoraConfig"),
    ({"r": 0}, "model.lora.r", "1 or more"),
    ({"eva_config": {"roh": 2.0}}, "model.lora.eva_config.roh", "unknown key 'roh'"),
    ({"lora_dropout": 1.5}, "model.lora.lora_dropout", "less than 1"),
    ({"bias": "some"}, "model.lora.bias", "'none', 'all' or 'lora_only'"),
    ({"target_modules": "x", "layers_pattern": "y"}, "model.lora.target_modules", "cannot be used"),
]


@pytest.mark.parametrize(("values", "place", "words"), LORA_WRONG, ids=[str(v) for v, _, _ in LORA_WRONG])
def test_lora_settings(values: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check(LoraConfig, values, "model.lora")
    assert caught.value.where == place
    assert words in str(caught.value)


def test_lora_accepts_valid_settings() -> None:
    for values in (
        {"r": 16, "target_modules": "all-linear"},
        {"target_modules": ["q_proj"], "init_lora_weights": "pissa_niter_4", "layer_replication": [[0, 4], [2, 5]]},
        {"rank_pattern": {"q_proj": 4}, "init_lora_weights": False},
    ):
        assert check(LoraConfig, values, "model.lora").peft_type == "LORA"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"use_liger_kernel": True}, "trainer.use_liger_kernel: liger-kernel is not installed"),
        ({"report_to": "comet_ml"}, "trainer.report_to: 'comet_ml' is not installed"),
        ({"report_to": ["tensorboard"]}, "trainer.report_to: 'tensorboard' is not installed"),
    ],
)
def test_packages_required_by_a_config_must_be_installed(
    values: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("transformers.integrations.get_available_reporting_integrations", lambda: ["mlflow"])
    house = {"use_cpu": True, "bf16": False}
    check_installed(check(GRPOConfig, {"report_to": "mlflow"}, "trainer", project_defaults=house), "trainer")
    with pytest.raises(RecipeError) as caught:
        check_installed(check(GRPOConfig, values, "trainer", project_defaults=house), "trainer")
    assert str(caught.value).startswith(words)
