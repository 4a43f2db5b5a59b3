"""Memory of policy, reference, critic and reward model in three arrangements, trained for one step each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from ppo_memory_arm import size

from rlm_plugins.builtin.models import scratch
from rlm_plugins.models.critic import SharedCritic

Record = dict[str, Any]


def four_models(model: Record) -> dict[str, Record]:
    """Return arrangement → bytes of weights, gradients and moments.

    Args:
        model: The section ``model:`` of a recipe with the model `scratch`.
    """
    torch.set_num_threads(1)
    settings = {key: value for key, value in model.items() if key not in ("name", "lora")}
    lora = {"task_type": "CAUSAL_LM", **model["lora"]}
    return {
        "four full models": _full(settings),
        "four copies of the base, adapters on three": _copies(settings, lora),
        "one base, three adapters": _shared(settings, lora),
    }


def _full(settings: Record) -> Record:
    """Train all parameters of policy and critic; freeze reference and reward model."""
    policy, reference = _made(settings), _made(settings).requires_grad_(False)
    critic, judge = _made(settings).base_model, _made(settings).base_model.requires_grad_(False)
    heads = [_head(settings), _head(settings).requires_grad_(False)]
    _learn(policy, critic, heads[0])
    return _counted([policy, reference, critic, judge, *heads])


def _copies(settings: Record, lora: Record) -> Record:
    """Give each model its own base; policy and critic train an adapter, that of the reward model is frozen."""
    policy, critic, judge = (get_peft_model(_made(settings), LoraConfig(**lora)) for _ in range(3))
    judge.requires_grad_(False)
    heads = [_head(settings), _head(settings).requires_grad_(False)]
    _learn(policy, critic.get_base_model().base_model, heads[0])
    return _counted([policy, critic, judge, _made(settings).requires_grad_(False), *heads])


def _shared(settings: Record, lora: Record) -> Record:
    """Use the critic of ``critic: {kind: shared}``, and a third adapter as reward model."""
    policy = get_peft_model(_made(settings), LoraConfig(**lora))
    critic = SharedCritic(policy, lora, "cpu")
    policy.add_adapter("judge", LoraConfig(**lora))
    policy(input_ids=_ids()).logits.sum().backward()
    said_by_critic = critic.values(_ids(), torch.ones_like(_ids()), 3)
    critic.backward(said_by_critic, torch.ones_like(said_by_critic))
    _move([x for x in policy.parameters() if x.grad is not None] + list(critic.head.parameters()))
    return _counted([policy, critic.head, _head(settings).requires_grad_(False)])


def _learn(policy: Any, trunk: Any, head: torch.nn.Module) -> None:
    policy(input_ids=_ids()).logits.sum().backward()
    head(trunk(input_ids=_ids()).last_hidden_state).sum().backward()
    _move([x for part in (policy, trunk, head) for x in part.parameters() if x.grad is not None])


MOMENTS: list[torch.optim.Optimizer] = []


def _move(weights: Sequence[torch.Tensor]) -> None:
    MOMENTS.append(torch.optim.AdamW(weights))
    MOMENTS[-1].step()


def _counted(models: Sequence[torch.nn.Module]) -> Record:
    weights = list({id(x): x for model in models for x in model.parameters()}.values())
    sizes = {
        "parameters": size(weights),
        "gradients": size(x.grad for x in weights if x.grad is not None),
        "optimizer": size(
            x for adam in MOMENTS for state in adam.state.values() for name, x in state.items() if name != "step"
        ),
    }
    MOMENTS.clear()
    return sizes


def _made(settings: Record) -> Any:
    return scratch(**settings).load()


def _head(settings: Record) -> torch.nn.Linear:
    return torch.nn.Linear(settings["hidden"], 1)


def _ids() -> torch.Tensor:
    return torch.arange(9, 17).reshape(2, 4)
