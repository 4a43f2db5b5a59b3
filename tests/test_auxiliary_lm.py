"""Adapters beside the policy's: a second model on its base, parts with such models, and adapters in files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from fixtures_critic import LORA
from peft import LoraConfig, PeftModel, get_peft_model
from rlm_algorithms.auxiliary_lm import AuxiliaryLM, load_adapter
from rlm_algorithms.auxiliary_part import AuxiliaryPart, policy_gradient_loss
from safetensors.torch import load_file, save_file

from rlm_plugins.errors import PartError, RecipeError, RlmError
from rlm_plugins.models.adapters import FILE
from rlm_plugins.models.critic import SharedCritic
from rlm_plugins.workers import distributed as processes

PROMPTS, COMPLETIONS = [[5, 6], [7], [5, 6, 7]], [[8, 9, 1], [1], [4, 1]]
LENGTHS = torch.tensor([3, 1, 2])


def policy(**changes: Any) -> Any:
    """Return a policy in training mode with dropout, whose adapter is not at its initial weights."""
    config = {**LORA, "task_type": "CAUSAL_LM", "lora_dropout": 0.5, **changes}
    lm = get_peft_model(tiny.model(), LoraConfig(**config)).train()
    for name, x in lm.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(x, 0.02)
    return lm


def reader(model: Any) -> Any:
    """Return a function that computes log-probs one sequence at a time, without padding."""

    def read(prompts: Any, completions: Any) -> torch.Tensor:
        rows = []
        for prompt, completion in zip(prompts, completions, strict=True):
            logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0]
            logp = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            rows.append(logp.gather(1, torch.tensor(completion).unsqueeze(1)).squeeze(1))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    return read


def bernoulli(logp: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """Return a loss that has a gradient and differs between completions."""
    return ((logp.sum(1) - torch.tensor(rows)) ** 2).sum()


def test_new_auxiliary_model_equals_the_base() -> None:
    host = policy()
    chance = torch.get_rng_state()
    auxiliary = AuxiliaryLM(host, "second", learning_rate=1e-2, batch_size=2)
    assert torch.equal(torch.get_rng_state(), chance), "the run's own random numbers"
    found = auxiliary.logp(reader(host), PROMPTS, COMPLETIONS, 4)
    with host.disable_adapter(), torch.no_grad():
        base = reader(host)(PROMPTS, COMPLETIONS)
    there = torch.arange(4) < LENGTHS.unsqueeze(1)
    assert torch.equal(found[:, :3].where(there[:, :3], 0.0), base.where(there[:, :3], 0.0))
    assert not found[~there].any()
    assert not found.requires_grad


def test_auxiliary_model_trains_like_a_separate_model() -> None:
    """Two steps of AdamW with gradient clipping, on a policy whose adapter equals the second one."""
    host = policy()
    auxiliary = AuxiliaryLM(host, "second", learning_rate=1e-2, max_grad_norm=0.5, batch_size=2)
    alone = get_peft_model(tiny.model(), LoraConfig(**LORA, task_type="CAUSAL_LM"))
    mine = {auxiliary._adapter.file_key(name): x for name, x in auxiliary._adapter.weights().items()}
    theirs = {name.replace(".default.", "."): x for name, x in alone.named_parameters() if x.requires_grad}
    for name, x in theirs.items():
        x.data.copy_(mine[name])
    optimizer = torch.optim.AdamW(theirs.values(), lr=1e-2, weight_decay=0.0)
    before = {name: x.detach().clone() for name, x in host.named_parameters()}
    for step in range(2):
        norm = auxiliary.train_step(reader(host), PROMPTS, COMPLETIONS, 3, bernoulli, step)
        there = torch.arange(3) < LENGTHS.unsqueeze(1)
        bernoulli(reader(alone)(PROMPTS, COMPLETIONS).where(there, 0.0), [0, 1, 2]).backward()
        assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs.values(), 0.5).item(), rel=1e-4)
        optimizer.step()
        optimizer.zero_grad()
        for name, x in theirs.items():
            torch.testing.assert_close(mine[name], x, rtol=1e-3, atol=1e-5)
    moved = {name for name, x in host.named_parameters() if not torch.equal(x, before[name])}
    assert moved
    assert all(".second0." in name for name in moved)
    assert not [name for name, x in host.named_parameters() if x.grad is not None]
    assert host.training
    assert {name for name, x in host.named_parameters() if x.requires_grad} == {
        name for name in before if ".default." in name
    }


def test_auxiliary_model_state_is_restored() -> None:
    host, other = policy(), policy()
    auxiliary = AuxiliaryLM(host, "second", learning_rate=1e-2)
    auxiliary.train_step(reader(host), PROMPTS, COMPLETIONS, 3, bernoulli, 0)
    state = copy.deepcopy(auxiliary.state_dict())
    AuxiliaryLM(other, "second", learning_rate=1e-2)  # who comes second has another name, and the same state
    again = AuxiliaryLM(other, "second", learning_rate=1e-2, seed=7)
    again.load_state_dict(state)
    for model, on in ((auxiliary, host), (again, other)):
        model.train_step(reader(on), PROMPTS, COMPLETIONS, 3, bernoulli, 1)
    expected, actual = (
        model.logp(reader(on), PROMPTS, COMPLETIONS, 3) for model, on in ((auxiliary, host), (again, other))
    )
    assert torch.equal(actual, expected)
    assert list(host.peft_config) == ["default"], "PEFT saves none of it"
    with pytest.raises(RlmError, match="does not fit this base"):
        AuxiliaryLM(policy(r=2), "second", learning_rate=1e-2).load_state_dict(state)
    with pytest.raises(RlmError, match="no optimizer state of the second"):
        again.load_state_dict({name: x for name, x in state.items() if name != "optimizer"})


def test_the_gradient_is_that_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is averaged over processes, one of which has no completion."""
    host = policy()
    auxiliary = AuxiliaryLM(host, "second", learning_rate=0.0, max_grad_norm=0.0)
    norm = auxiliary.train_step(reader(host), PROMPTS, COMPLETIONS, 3, bernoulli, 0)

    class State:
        num_processes, process_index = 4, 0

    found: list[torch.Tensor] = []
    for State.process_index in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(processes, "processes", lambda: State)
            patch.setattr("rlm_algorithms.auxiliary_lm.processes", lambda: State)
            auxiliary.train_step(reader(host), PROMPTS, COMPLETIONS, 3, _remembers(auxiliary, found), 0)
    total = torch.stack(found).mean(0)
    assert total.norm().item() == pytest.approx(norm, rel=1e-5)


def _remembers(auxiliary: AuxiliaryLM, found: list[torch.Tensor]) -> Any:
    auxiliary._optimizer._average_gradients = lambda weights: found.append(
        torch.cat([x.grad.flatten() for x in weights])
    )  # type: ignore[method-assign]
    return bernoulli


def test_sharded_weights_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_algorithms.auxiliary_lm._sharding", lambda: "FSDP")
    with pytest.raises(RlmError, match="cannot be trained with FSDP"):
        AuxiliaryLM(policy(), "second", learning_rate=1.0)


def test_auxiliary_model_requires_a_frozen_base() -> None:
    with pytest.raises(RlmError, match="frozen base"):
        AuxiliaryLM(tiny.model(), "second", learning_rate=1.0)


# ---- parts with models of their own


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_value_and_gradient_of_the_policy_gradient_loss(aggregation: Any) -> None:
    """Two micro-batches against a loop over tokens."""
    lengths, advantages = [3, 1, 2], torch.tensor([0.7, -1.2, 0.5])
    mask = torch.arange(3) < torch.tensor(lengths).unsqueeze(1)
    values = -torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    logp = values.where(mask, 0.0).requires_grad_()
    loss = policy_gradient_loss(advantages, lengths, aggregation)
    found = loss(logp[[2, 0]], [2, 0]) + loss(logp[[1]], [1])
    found.backward()

    total, gradient = 0.0, torch.zeros(3, 3)
    for i, length in enumerate(lengths):
        for t in range(length):
            weight = 1 / sum(lengths) if aggregation == "token_mean" else 1 / length / 3
            total -= weight * advantages[i].item() * values[i, t].item()
            gradient[i, t] = -weight * advantages[i]
    assert found.item() == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(logp.grad.where(mask, 0.0), gradient)


def test_memory_is_that_of_weights_and_optimizer_states() -> None:
    host = policy()
    stage = SimpleNamespace(source=SimpleNamespace(config=host.config), lora=LORA)
    part = AuxiliaryPart("second", seeds=(1, 2), learning_rate=1e-2)
    part.setup(host, {})
    held = 0
    for model in part.models:
        model.train_step(reader(host), PROMPTS, COMPLETIONS, int(LENGTHS.max()), bernoulli, 0)
        weights = model._adapter.parameters()
        assert all(x.grad is None for x in weights)
        moments = [x for state in model._optimizer._optimizer.state.values() for x in state.values() if x.ndim]
        held += sum(x.numel() * x.element_size() for x in (*weights, *moments))
    assert part.memory_bytes(stage) == held
    larger = AuxiliaryPart("second", learning_rate=1e-2, lora={**LORA, "r": 2 * LORA["r"]})
    assert larger.memory_bytes(stage) == held, "two models of rank r, one of rank 2 r"


def test_models_of_a_part_differ_by_their_seed() -> None:
    host = policy()
    part = AuxiliaryPart("second", seeds=(1, 1, 2), learning_rate=1e-2)
    with pytest.raises(PartError, match="requires a policy"):
        assert part.models
    assert part.state_dict() == {}
    part.setup(host, {})
    first, same, other = ([x.detach() for x in model._adapter.parameters()] for model in part.models)
    assert all(map(torch.equal, first, same))
    assert not all(map(torch.equal, first, other))


def test_trained_base_is_rejected_before_loading() -> None:
    with pytest.raises(RecipeError, match="`second` requires a frozen base"):
        AuxiliaryPart("second", learning_rate=1e-2).check(None)


# ---- adapters in files: a trained one (a critic's) and a frozen one (a reward model's)

IDS = torch.tensor([[5, 6, 7, 1]])


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
