"""The critic's part of the memory estimate, and the benchmark of PPO's memory, against real tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model_memory
import ppo_memory
import pytest
import tiny
import torch
from fixtures_critic import KINDS, LORA, critic, trainer
from ppo_memory_arm import bytes_of, size
from ppo_memory_four import four_models
from rlm_fast.memory_estimate import Load, estimate

from rlm_plugins.builtin.models import scratch

NOTHING = Load(generated=0, prompt_len=0, completion_len=0, micro_batch_size=0)
POLICY = {"r": 8, "target_modules": tiny.ALL_LINEAR}
"""As `tiny.lora()`."""
SMALL: dict[str, Any] = {
    "sizes": {"hidden": 64, "layers": 2, "heads": 2, "intermediate": 96},
    "vocabulary": 300,
}


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


@pytest.mark.full
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
    actual = bytes_of(ppo_memory.document(arm, checkpointing, **SMALL))
    expected = actual["expected"]
    for name in ("parameters", "gradients", "optimizer"):
        assert expected[name] == actual[name], name
    assert expected["peak"] == pytest.approx(actual["peak"], rel=close)


def build_model(vocabulary: int) -> Any:
    settings = ppo_memory.document("grpo", False, SMALL["sizes"], vocabulary)["model"]
    return scratch(**{key: value for key, value in settings.items() if key not in ("name", "lora")}).load()


def test_four_models_are_counted_once_each() -> None:
    found = four_models(ppo_memory.document("grpo", False, **SMALL)["model"])
    full, copies, shared = found.values()
    policy, head = build_model(300), 4 * 65
    trunk = size(policy.base_model.parameters())
    assert full["parameters"] == 2 * size(policy.parameters()) + 2 * trunk + 2 * head
    assert full["gradients"] == size(policy.parameters()) + trunk + head
    assert copies["gradients"] == shared["gradients"] == shared["optimizer"] / 2
    assert full["optimizer"] == 2 * full["gradients"]
    assert sum(shared.values()) < sum(copies.values()) < sum(full.values())
