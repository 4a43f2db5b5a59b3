"""An adapter beside the policy's: a trained one (a critic's) and a frozen one (a reward model's)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixtures_critic import LORA
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import FILE, load_adapter
from rlm_plugins.models.critic import SharedCritic

IDS = torch.tensor([[5, 6, 7, 1]])


def policy() -> Any:
    """Return a policy in training mode, with dropout."""
    config = {**LORA, "task_type": "CAUSAL_LM", "lora_dropout": 0.5}
    return get_peft_model(tiny.model(), LoraConfig(**config)).train()


def moved_critic() -> SharedCritic:
    """Return a critic whose adapter is not at its initial weights."""
    own_critic = SharedCritic(policy(), LORA, "cpu")
    for name, x in own_critic.trunk_weights().items():
        if "lora_B" in name:
            torch.nn.init.normal_(x)
    return own_critic


def test_the_files_of_a_critic_are_pefts_own_and_load_again(tmp_path: Path) -> None:
    own_critic = moved_critic()
    own_critic.save(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"adapter_config.json", FILE, "value_head.safetensors"}
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == LORA["r"]
    saved = load_file(tmp_path / FILE)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in saved
    theirs = PeftModel.from_pretrained(tiny.model(), tmp_path)
    with torch.no_grad(), own_critic.active():
        ours = own_critic.trunk(input_ids=IDS).last_hidden_state
    assert torch.equal(ours, theirs.get_base_model().model(input_ids=IDS).last_hidden_state)
    again = SharedCritic(policy(), LORA, "cpu")
    again.load(tmp_path)
    assert all(torch.equal(x, again.trunk_weights()[name]) for name, x in own_critic.trunk_weights().items())


def test_frozen_adapter_matches_the_critic_and_is_not_trained(tmp_path: Path) -> None:
    own_critic = moved_critic()
    own_critic.save(tmp_path)
    host = policy()
    chance = torch.get_rng_state()
    found = load_adapter(host, "reward0", tmp_path)
    assert torch.equal(torch.get_rng_state(), chance), "no random number is drawn"
    assert list(host.peft_config) == ["default"]
    trunk = host.get_base_model().base_model
    with found.active():
        read = trunk(input_ids=IDS).last_hidden_state
        assert not trunk.training
    assert not read.requires_grad
    with torch.no_grad(), own_critic.active():
        assert torch.equal(read, own_critic.trunk(input_ids=IDS).last_hidden_state)
    assert trunk.training
    assert not [name for name, x in found.weights().items() if x.requires_grad]


def test_adapter_of_another_base_is_rejected(tmp_path: Path) -> None:
    moved_critic().save(tmp_path)
    saved = load_file(tmp_path / FILE)
    save_file({name.replace("layers.1", "layers.7"): x for name, x in saved.items()}, tmp_path / FILE)
    with pytest.raises(RlmError, match=r"does not fit this base(.|\n)*layers"):
        load_adapter(policy(), "reward0", tmp_path)
