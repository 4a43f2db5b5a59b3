"""What the critic expects of the rows, and how it learns: values before the update, values now, a step of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rlm_plugins import stage
from rlm_plugins.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.models.auxiliary_optimizer import AuxiliaryOptimizer
from rlm_plugins.models.critic import Critic, HeadCritic, SeparateCritic
from rlm_plugins.models.shared_critic import SharedCritic
from rlm_plugins.packing.pack import layouts
from rlm_plugins.trainer.logprobs import padded_rows
from rlm_plugins.trainer.policy_drift import Moving


class Valuing(Moving):
    """The same, with a critic where parts name `values`.

    The equation sees the values as leaves: its backward pass says what the loss wants of them. Only then, when the
    policy's activations are gone, the critic reads the rows with a graph and passes that on, with its own adapter on.
    So policy and critic never share a backward pass, and never the memory for two.

    Args:
        critic: What the recipe says of it; None: no part asks for one.
    """

    def __init__(self, *, critic: stage.Critic | None = None, **rest: Any) -> None:
        self._tutor: AuxiliaryOptimizer[Critic] | None = None
        self._said: list[tuple[Callable[[], torch.Tensor], torch.Tensor]] = []
        self._as_scored = False
        self._warmup = critic.warmup_steps if critic is not None else 0
        separate = critic is not None and critic.kind == "separate"
        start = copy.deepcopy(rest["model"].base_model) if separate else None  # before an adapter is put into it
        super().__init__(**rest)
        if critic is None:
            return
        self._refuse_sharding("a critic cannot be trained", "critic")
        found = _built(critic, self.model, start, self.accelerator.device)
        if self.args.gradient_checkpointing and isinstance(found, SeparateCritic):
            found.trunk.gradient_checkpointing_enable()
        self._tutor = AuxiliaryOptimizer(
            found,
            name="critic",
            learning_rate=self.args.learning_rate if critic.learning_rate is None else critic.learning_rate,
            max_grad_norm=critic.max_grad_norm,
            adam={"betas": (self.args.adam_beta1, self.args.adam_beta2), "eps": self.args.adam_epsilon},
            mean=lambda x: self.accelerator.reduce(x, reduction="mean"),
        )

    def _refuse_sharding(self, problem: str, where: str) -> None:
        """Where gradients are not the trainer's own to share, to clip or to drop."""
        sharded = {"FSDP": self.is_fsdp_enabled, "DeepSpeed": self.is_deepspeed_enabled, "fp16": self.args.fp16}
        if found := [name for name, on in sharded.items() if on]:
            hint = "train on one device or with DDP (`accelerate launch --multi_gpu`), in bf16 or float32"
            raise RlmError(f"{problem} with {found[0]}", where=where, hint=hint)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """The policy alone: what else reads with its base, such as the critic, has files of its own."""
        if hasattr(self.model, "peft_config"):
            state_dict = without_auxiliary(self.model, self.model.state_dict() if state_dict is None else state_dict)
        super()._save(output_dir, state_dict)

    # -- what it expects

    @property
    def critic(self) -> Critic | None:
        """The critic, where there is one."""
        return None if self._tutor is None else self._tutor.model

    def _values_before(self, out: dict[str, Any]) -> torch.Tensor | None:
        """The values of all rows of this process (B, T), before the update."""
        if self.critic is None:
            return None
        rows, size = len(out["completion_ids"]), self.args.per_device_train_batch_size
        with torch.no_grad():
            pieces = [self._values(out, slice(first, first + size)) for first in range(0, rows, size)]
        self._as_scored = self.model.training
        return torch.cat(pieces)

    def _values_now(self, inputs: dict[str, Any], heard: list[torch.Tensor] | None = None) -> torch.Tensor | None:
        """The values of a micro-batch (B, T) as a leaf; what the loss wants of it is passed on after the backward pass.

        Until the critic moves, they are those the rows were scored with.

        Args:
            inputs: The micro-batch.
            heard: Hidden states of the policy's pass over it, where the critic reads those.
        """
        if self.critic is None:
            return None
        if heard is not None:
            said = self._heard(self.critic, torch.cat(heard), inputs)
        elif self._as_scored and self.model.training:
            said = inputs["old_values"]
        else:
            with torch.no_grad():
                said = self._values(inputs)
        leaf = said.detach().requires_grad_()
        if self.model.training:
            self._said.append((partial(self._values, inputs) if heard is None else lambda: said, leaf))
        return leaf

    def _values(self, inputs: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
        assert self.critic is not None
        if "pixel_values" in inputs:
            raise RlmError("a critic reads text, and these rows have images", where="critic")
        ids, there, width = padded_rows(inputs)
        with self.accelerator.autocast():
            if not self._reads_packed(ids, there, width):
                return self.critic.values(ids[rows], there[rows], width)
            (layout,) = layouts(ids[rows], there[rows], width)
            return self.critic.packed_values(layout)

    def _heard(self, critic: Critic, hidden: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """The values (B, T) of the hidden states of the policy's pass over a micro-batch."""
        ids, there, width = padded_rows(inputs)
        if not self._reads_packed(ids, there, width):
            return critic.values_of(hidden[:, -width - 1 : -1])
        (layout,) = layouts(ids, there, width)
        return layout.padded(critic.values_of(hidden[0, layout.read]))

    # -- how it learns

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's, and then the critic's: it learns from every micro-batch, and moves when the policy does."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if self._tutor is not None:
            for read, leaf in self._said:
                if leaf.grad is not None:
                    self._tutor.model.backward(read(), leaf.grad)
            self._said.clear()
            if self.accelerator.sync_gradients:
                self._move_critic(self._tutor)
        return loss

    def _move_critic(self, tutor: AuxiliaryOptimizer[Critic]) -> None:
        norm, rate = tutor.step(self.state.global_step)
        self._as_scored = False
        self._metrics["train"]["critic/grad_norm"].append(norm)
        self._metrics["train"]["critic/learning_rate"].append(rate)
        if self.state.global_step < self._warmup:
            self._hold_policy()

    def _hold_policy(self) -> None:
        """Keeps the policy where it is for this step."""
        for weight in self.model.parameters():
            weight.grad = None  # the optimiser passes over what has no gradient: not even decay moves it

    def _log_critic(self, scored: Batch) -> None:
        """How well it foresaw what came."""
        if self.critic is None or scored.values is None or scored.returns is None:
            return
        values, returns = scored.values[scored.mask], scored.returns[scored.mask]
        if len(values) < 2:
            return
        self._ledger["critic/value"].append(values.mean().item())
        self._ledger["critic/return"].append(returns.mean().item())
        if (spread := returns.var().item()) > 0:
            self._ledger["critic/explained_variance"].append(1 - (returns - values).var().item() / spread)


def _built(said: stage.Critic, policy: Any, start: Any, device: Any) -> Critic:
    """The critic of a recipe, as new.

    Args:
        said: The recipe's words.
        policy: The trainer's model.
        start: A copy of the trunk as it was loaded, for a critic of its own.
        device: Where the policy lives.
    """
    base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    width = base.config.get_text_config().hidden_size
    if said.kind == "shared":
        return SharedCritic(policy, said.lora or {}, device)
    return HeadCritic(base.base_model, width, device) if said.kind == "head" else SeparateCritic(start, width, device)
