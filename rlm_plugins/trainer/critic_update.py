"""Critic: values before the update, values for the loss, and an optimizer step of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from rlm_plugins import stage
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.models.critic import AuxiliaryOptimizer, Critic, HeadCritic, SeparateCritic, SharedCritic
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.observer import drop_gradients
from rlm_plugins.trainer.passes import ForwardPasses, prompt_completion


class CriticUpdate:
    """Values of the critic and its training, where parts name `values`.

    Loss parts receive the values as leaf tensors. After the backward pass of the loss, which frees the activations of
    the policy, the gradients of these leaves are backpropagated through the critic. So policy and critic never share
    a backward pass, and never need memory for both.

    Attributes:
        optimizer: Optimizer of the critic, None without one.
    """

    def __init__(
        self, context: TrainerContext, passes: ForwardPasses, settings: stage.Critic | None, trunk: Any
    ) -> None:
        self.context, self.passes = context, passes
        self.optimizer: AuxiliaryOptimizer[Critic] | None = None
        self._pending: list[tuple[Callable[[], torch.Tensor], torch.Tensor]] = []
        self._is_unchanged = False
        self._warmup_steps = 0
        if settings is None:
            return
        context.refuse_sharding(*refused_critic(settings))
        args, self._warmup_steps = context.args, settings.warmup_steps
        critic = _build(settings, context.model, trunk, context.accelerator.device)
        if args.gradient_checkpointing and isinstance(critic, SeparateCritic):
            critic.trunk.gradient_checkpointing_enable()
        self.optimizer = AuxiliaryOptimizer(
            critic,
            name="critic",
            learning_rate=args.learning_rate if settings.learning_rate is None else settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            adam={"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon},
            mean=lambda x: context.accelerator.reduce(x, reduction="mean"),
        )

    @property
    def critic(self) -> Critic | None:
        """Critic, None without one."""
        return None if self.optimizer is None else self.optimizer.model

    # -- values

    def before_update(self, out: dict[str, Any]) -> torch.Tensor | None:
        """Return the values (B, T) of the completions of this process, without gradient."""
        if self.critic is None:
            return None
        count, size = len(out["completion_ids"]), self.context.args.per_device_train_batch_size
        with torch.no_grad():
            chunks = [self.values(out, slice(first, first + size)) for first in range(0, count, size)]
        self._is_unchanged = self.context.is_training
        return torch.cat(chunks)

    def hidden_states(self) -> Any:
        """Return a context that collects the hidden states of the policy, for a critic that is a head on them."""
        return nullcontext() if self.critic is None else self.critic.capture_hidden()

    def for_loss(self, inputs: dict[str, Any], hidden: list[torch.Tensor] | None = None) -> torch.Tensor | None:
        """Return the values (B, T) of a micro-batch as a leaf tensor, whose gradient :meth:`step` backpropagates.

        Until the critic's first step on a generation batch they are those of the scoring phase.
        """
        if self.critic is None:
            return None
        if hidden is not None:
            values = self.passes.of_hidden(self.critic.values_of, torch.cat(hidden), prompt_completion(inputs))
        elif self._is_unchanged and self.context.is_training:
            values = inputs["old_values"]
        else:
            with torch.no_grad():
                values = self.values(inputs)
        leaf = values.detach().requires_grad_()
        if self.context.is_training:
            self._pending.append((partial(self.values, inputs) if hidden is None else lambda: values, leaf))
        return leaf

    def values(self, inputs: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        """Return the values (B, T) of some sequences of TRL's dictionary, by a forward pass.

        Raises:
            RlmError: The sequences have images.
        """
        assert self.critic is not None
        if "pixel_values" in inputs:
            raise RlmError("a critic requires completions without images", where="critic")
        with self.context.accelerator.autocast():
            return self.passes.values(self.critic, prompt_completion(inputs), rows)

    # -- update

    def step(self) -> None:
        """Backpropagate the gradients of the values, and step the critic whenever the policy steps."""
        if self.optimizer is None:
            return
        for values, leaf in self._pending:
            if leaf.grad is not None:
                self.optimizer.model.backward(values(), leaf.grad)
        self._pending.clear()
        if self.context.accelerator.sync_gradients:
            norm, rate = self.optimizer.step(self.context.step)
            self._is_unchanged = False
            self.context.log("critic/grad_norm", norm)
            self.context.log("critic/learning_rate", rate)
            if self.context.step < self._warmup_steps:
                drop_gradients(self.context.model)

    def log(self, scored: Batch) -> None:
        """Log how well the values predict the returns of a scored batch."""
        if self.critic is None or scored.values is None or scored.returns is None:
            return
        values, returns = scored.values[scored.mask], scored.returns[scored.mask]
        if len(values) < 2:
            return
        self.context.log("critic/value", values.mean().item())
        self.context.log("critic/return", returns.mean().item())
        if (variance := returns.var().item()) > 0:
            self.context.log("critic/explained_variance", 1 - (returns - values).var().item() / variance)


def refused_critic(settings: stage.Critic) -> tuple[str, str]:
    """Return what sharded weights do not allow, and its address; a copy of the model without a warm-up is allowed."""
    if settings.kind != "separate":
        return f"a critic of the kind `{settings.kind}` is a part of the policy and cannot be trained", "critic.kind"
    return ("gradients of the policy cannot be dropped", "critic.warmup_steps") if settings.warmup_steps else ("", "")


def trunk_of(settings: stage.Critic | None, model: Any) -> Any:
    """Return a copy of the model without adapter, for a critic of kind `separate`; otherwise None."""
    return copy.deepcopy(model.base_model) if settings is not None and settings.kind == "separate" else None


def _build(settings: stage.Critic, policy: Any, trunk: Any, device: Any) -> Critic:
    base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    width = base.config.get_text_config().hidden_size
    if settings.kind == "shared":
        return SharedCritic(policy, settings.lora or {}, device)
    return (
        HeadCritic(base.base_model, width, device) if settings.kind == "head" else SeparateCritic(trunk, width, device)
    )
