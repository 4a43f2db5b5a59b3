"""The section `critic:` of a recipe: when it applies, its defaults, invalid settings, and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model_memory
import ppo_memory
import pytest
import tiny
import torch
import yaml
from fixtures_critic import KINDS, LORA, critic, trainer
from ppo_memory_arm import bytes_of, size
from ppo_memory_four import four_models
from rlm_fast.memory_estimate import Load, estimate

from rlm_plugins import recipe
from rlm_plugins.builtin.models import scratch
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose, explain_origins, resolved
from rlm_plugins.registry import Registry
from rlm_plugins.stage import Critic, Stage

REGISTRY = Registry()
SMALL = """
model: {name: scratch, lora: {r: 2, target_modules: all-linear, bias: none}}
environment: {name: addition, train_rows: 64, test_rows: 8}
rewards: [accuracy]
algorithm: ppo
"""


def read(folder: Path, *overrides: str, text: str = SMALL) -> recipe.Recipe:
    file = folder / "recipe.yaml"
    file.write_text(text)
    return recipe.load(file, overrides)


def stage(folder: Path, *overrides: str) -> Stage:
    return compose(read(folder, *overrides), REGISTRY)[0]


def test_part_that_requires_values_creates_a_critic(tmp_path: Path) -> None:
    assert stage(tmp_path).critic == Critic("shared", {"r": 2, "target_modules": "all-linear"})
    assert stage(tmp_path, "algorithm=grpo").critic is None
    assert "critic" not in stage(tmp_path, "algorithm=grpo").body
    taught = "algorithm={name: grpo, advantage: gae, penalties: [{name: value_loss, beta: 1.0}]}"
    assert stage(tmp_path, taught).critic is not None


def test_critic_has_no_policy_dropout(tmp_path: Path) -> None:
    found = stage(tmp_path, "model.lora.lora_dropout=0.1")
    assert found.lora["lora_dropout"] == 0.1
    assert found.critic == Critic("shared", {"r": 2, "target_modules": "all-linear"})


QUANTISED = """
from rlm_plugins import hookimpl
from rlm_plugins.builtin.models import scratch


def four_bits():
    made = scratch()
    made.config.quantization_config = {"load_in_4bit": True}
    return made


@hookimpl
def rlm_models():
    return {"four_bits": four_bits}
"""


@pytest.mark.parametrize("kind", ["shared", "head", "separate"])
def test_quantized_base_cannot_be_copied(tmp_path: Path, kind: str) -> None:
    (tmp_path / "guest.py").write_text(QUANTISED)
    found, registry = read(tmp_path, "model.name=four_bits", f"critic.kind={kind}"), Registry([tmp_path / "guest.py"])
    if kind != "separate":
        assert compose(found, registry)[0].critic.kind == kind
        return
    with pytest.raises(RecipeError, match=r"^critic(.|\n)*are quantized(.|\n)*kind: shared(.|\n)*kind: head"):
        compose(found, registry)


def test_critic_without_adapter_is_a_separate_model(tmp_path: Path) -> None:
    assert stage(tmp_path, "model.lora=null").critic == Critic("separate")
    assert stage(tmp_path, "model.lora=null", "critic.kind=head").critic == Critic("head")


def test_resolved_recipe_round_trips(tmp_path: Path) -> None:
    first = read(tmp_path, "critic.learning_rate={from: 1e-3, to: 0.0, over: 9}")
    stages = compose(first, REGISTRY)
    again = read(tmp_path, text=yaml.safe_dump(resolved(stages, first)))
    assert compose(again, REGISTRY)[0].critic == stages[0].critic
    origins = {address: origin for address, _, origin in map(dict.values, explain_origins(first, stages[0], ()))}
    assert origins["critic.learning_rate.from"] == "command line"
    assert origins["critic.kind"] == "default"
    assert origins["critic.lora.r"] == "as the policy's"


def test_stages_inherit_the_critic_if_they_use_it(tmp_path: Path) -> None:
    text = SMALL.replace("algorithm: ppo", "critic: {warmup_steps: 3}\nstages: [{algorithm: sft}, {algorithm: ppo}]")
    first, second = compose(read(tmp_path, text=text), REGISTRY)
    assert first.critic is None
    assert second.critic is not None
    assert second.critic.warmup_steps == 3


def test_critic_of_a_stage_that_does_not_use_it_is_rejected(tmp_path: Path) -> None:
    """It is rejected even if another stage has a critic."""
    text = SMALL.replace("algorithm: ppo", "stages: [{algorithm: sft, critic: {kind: head}}, {algorithm: ppo}]")
    with pytest.raises(RecipeError, match=r"stages\[0\]\.critic (.|\n)*no part of the algorithm requires `values`"):
        compose(read(tmp_path, text=text), REGISTRY)


WRONG: list[tuple[list[str], str, str]] = [
    (["critic.kind=sharde"], "critic.kind (command line)", "the string 'sharde' | 'shared', 'head' or 'separate'"),
    (["critic.warmup=3"], "critic.warmup (command line)", "unknown key 'warmup' | did you mean 'warmup_steps'?"),
    (["critic.warmup_steps=-1"], "critic.warmup_steps (", "0 or more"),
    (["critic.learning_rate={from: 1.0, to: -1.0, over: 3}"], "critic.learning_rate (", "0 or more"),
    (["critic={kind: head, lora: {r: 2}}"], "critic.lora (", "has no adapter | `shared`"),
    (["critic.lora.rr=2"], "critic.lora.rr (", "unknown field 'rr' | did you mean 'r'?"),
    (["critic.lora={r: 2, lora_dropout: 0.1}"], "critic.lora.lora_dropout (", "a critic has no dropout | expected 0"),
    (["critic.lora.modules_to_save=[x]"], "critic.lora.modules_to_save (", "the value head is always trained"),
    (["model.lora=null", "critic.kind=shared"], "critic (", "all its weights are trained | kind: separate"),
    (["model.lora.bias=all"], "critic", "`model.lora.bias` trains some of its weights"),
    (["algorithm=grpo", "critic.warmup_steps=3"], "critic (", "no part of the algorithm requires `values`"),
    (["algorithm.penalties=none"], "algorithm.advantage (", "`gae` requires a critic, but no loss term trains one"),
]
"""Overrides, the place that the error names, and its words, between bars."""


@pytest.mark.parametrize(("overrides", "place", "words"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_errors_name_their_place(tmp_path: Path, overrides: list[str], place: str, words: str) -> None:
    with pytest.raises(RecipeError) as origins:
        stage(tmp_path, *overrides)
    assert str(origins.value).startswith(place), origins.value
    for word in words.split(" | "):
        assert word in str(origins.value), origins.value


NOTHING = Load(generated=0, prompt_len=0, completion_len=0, micro_batch_size=0)
POLICY = {"r": 8, "target_modules": tiny.ALL_LINEAR}
"""As `tiny.lora()`."""
SIZES: dict[str, Any] = {"sizes": {"hidden": 64, "layers": 2, "heads": 2, "intermediate": 96}, "vocabulary": 300}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_gradients_and_adam_to_the_byte(tmp_path: Path, kind: str) -> None:
    equation_trainer = trainer(tmp_path, critic(kind), max_steps=1)
    always = estimate(tiny.model().config, POLICY, NOTHING, critic(kind)).always
    optimizer = equation_trainer.components.critic.optimizer
    move, seen = optimizer.step, []
    optimizer.step = lambda step: seen.append(size(x.grad for x in equation_trainer.critic.parameters())) or move(step)
    equation_trainer.train()
    moments = (x for state in optimizer._optimizer.state.values() for name, x in state.items() if name != "step")
    assert always["critic weights"] == size(equation_trainer.critic.parameters())
    assert always["critic gradients"] == seen[0]
    assert always["critic optimizer state"] == size(moments)
    assert always["trained weights"] == size(
        x for name, x in equation_trainer.model.named_parameters() if "lora" in name and ".critic." not in name
    )


def test_a_copy_is_in_float32_whatever_it_was_copied_from() -> None:
    config = tiny.model().config
    config.dtype = torch.bfloat16
    trunk = size(tiny.model().base_model.parameters())
    found = estimate(config, LORA, NOTHING, critic("separate")).always
    assert found["critic weights"] == trunk + 4 * (config.hidden_size + 1)
    assert config.dtype == torch.bfloat16


def test_critic_and_policy_activations_are_not_added() -> None:
    load = Load(generated=0, prompt_len=200, completion_len=100, micro_batch_size=4)
    config = tiny.model().config
    alone, shared, head = (
        estimate(config, LORA, load, settings) for settings in (None, critic("shared"), critic("head"))
    )
    assert shared.update == head.update == alone.update
    assert not alone.critic_update
    assert not head.critic_update
    assert shared.critic_update["critic activations"] == shared.update["activations"]
    assert shared.peak - alone.peak == sum(shared.always.values()) - sum(alone.always.values())


def test_model_page_equals_the_estimate() -> None:
    """The tables are generated, not written by hand. Only the smallest model is compared."""
    page = (Path(__file__).parents[1] / "benchmarks/results/model_memory.md").read_text()
    assert page.startswith(model_memory.HEADING)
    with_checkpointing, without = page.split("Gradient checkpointing off")
    for part, checkpointing in ((with_checkpointing, True), (without, False)):
        for four_bit in (False, True):
            assert model_memory.line("0.5B", four_bit, checkpointing) in part.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "checkpointing", "close"),
    [("ppo, shared", False, 0.1), pytest.param("ppo, separate", True, 0.2, marks=pytest.mark.full)],
)
def test_memory_of_a_ppo_step_equals_the_estimate(arm: str, checkpointing: bool, close: float) -> None:
    """Memory at rest is equal to the byte, the peak closely: a copy has no gradients during the policy update."""
    actual = bytes_of(ppo_memory.document(arm, checkpointing, **SIZES))
    expected = actual["expected"]
    for name in ("parameters", "gradients", "optimizer"):
        assert expected[name] == actual[name], name
    assert expected["peak"] == pytest.approx(actual["peak"], rel=close)


def build_model(vocabulary: int) -> Any:
    settings = ppo_memory.document("grpo", False, SIZES["sizes"], vocabulary)["model"]
    return scratch(**{key: value for key, value in settings.items() if key not in ("name", "lora")}).load()


def test_four_models_are_counted_once_each() -> None:
    found = four_models(ppo_memory.document("grpo", False, **SIZES)["model"])
    full, copies, shared = found.values()
    policy, head = build_model(300), 4 * 65
    trunk = size(policy.base_model.parameters())
    assert full["parameters"] == 2 * size(policy.parameters()) + 2 * trunk + 2 * head
    assert full["gradients"] == size(policy.parameters()) + trunk + head
    assert copies["gradients"] == shared["gradients"] == shared["optimizer"] / 2
    assert full["optimizer"] == 2 * full["gradients"]
    assert sum(shared.values()) < sum(copies.values()) < sum(full.values())
