"""Context that the collaborators of one trainer share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from rlm_plugins.equation.equation import Equation
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.dynamic_sampling import LEFT_PADDED
from rlm_plugins.stage import Reward

_OWN = ("teacher_logp", "has_teacher", "teacher_top_ids", "teacher_top_logp", "policy_version", "observation_mask")
TRL_COLUMNS = {
    "old_logp": "old_per_token_logps",
    "ref_logp": "ref_per_token_logps",
    "rollout_logp": "sampling_per_token_logps",
    **{name: name for name in _OWN},
}
"""Field of the batch → its column in TRL's dictionary, in both phases."""


@dataclass(frozen=True)
class DataNeeds:
    """Data needed by the scoring phase, and where old log-probs may come from."""

    equation: Equation
    args: Any
    learners: Sequence[Bound] = ()

    def for_scoring(self, name: str) -> bool:
        """Return True if a part requests a field of the batch before the loss phase, or in `update`."""
        parts = [*self.equation.shapers, *self.equation.filters, self.equation.advantage]
        return any(name in p.part.required_data for p in parts) or any(
            name in p.part.update_required_data for p in self.learners
        )

    @property
    def old_for_scoring(self) -> bool:
        """True if old log-probs are needed before the first pass of the update."""
        names = ("old_logp", "policy_drift")
        return self.equation.requires("expected_logp") or any(self.for_scoring(name) for name in names)

    @property
    def old_by_trl(self) -> bool:
        """True if TRL computes old log-probs: a generation is more than one optimizer step, or not a part of one."""
        args = self.args
        return bool(args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations))

    @property
    def first_pass_is_old(self) -> bool:
        """True if the first pass of the update gives old log-probs: a generation is one optimizer step, repeated."""
        args = self.args
        repeated = args.steps_per_generation == args.gradient_accumulation_steps and args.num_iterations > 1
        return repeated and not args.use_vllm


@dataclass(frozen=True)
class TrainerContext:
    """State of a trainer that more than one collaborator uses.

    No collaborator accesses TRL's trainer itself; a collaborator that needs more than this receives it as an argument.

    Args:
        trainer: TRL's trainer; the properties below are its attributes that change during training.
        tokenizer: Tokenizer of the policy, also where a processor wraps it.
        rewards: Entries of ``rewards:`` in the order of `reward_funcs`.
        learners: Every part that may have a state, except the sampler, which is updated every sampling round.
        sampler: Prompt sampler that chooses every generation batch, or None.
        source_labels: Labels of the rollout sources beside the policy.
    """

    trainer: Any = field(repr=False)
    args: Any
    accelerator: Any
    tokenizer: Any
    equation: Equation
    rewards: Sequence[Reward]
    needs: DataNeeds
    learners: Sequence[Bound]
    sampler: Bound | None
    source_labels: Sequence[str] = ()
    has_critic: bool = False

    # -- attributes of the trainer that change

    model = property(attrgetter("trainer.model"), doc="Policy, as the trainer holds it.")
    observers = property(attrgetter("trainer.observers"), doc="Observers of its steps, in the order of their calls.")
    is_training = property(attrgetter("trainer.model.training"), doc="False during evaluation.")
    optimizer = property(attrgetter("trainer.optimizer"), doc="Optimizer of the policy; None before training.")
    temperature = property(attrgetter("trainer.temperature"), doc="Sampling temperature; divides all logits.")
    step = property(attrgetter("trainer.state.global_step"), doc="Optimizer steps done.")
    micro_step = property(attrgetter("trainer._step"), doc="Micro-batches done.")
    buffered_inputs = property(attrgetter("trainer._buffered_inputs"), doc="Micro-batches of the generation batch.")

    @property
    def is_sharded(self) -> bool:
        """True if FSDP or DeepSpeed shards the model."""
        return bool(self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled)

    @property
    def micro_steps_per_generation(self) -> int:
        """Micro-batches that one generation batch serves."""
        return int(self.args.steps_per_generation * self.args.num_iterations)

    @property
    def group_size(self) -> int:
        """Completions per prompt, in training or in the current evaluation."""
        args = self.args
        return int(args.num_generations if self.is_training else args.num_generations_eval or args.num_generations)

    @property
    def accumulation(self) -> int:
        """Micro-batches of one process in this optimizer step."""
        return int(self.trainer.current_gradient_accumulation_steps) if self.is_training else 1

    def is_provided(self, column: str) -> bool:
        """Return True if an observer provides a column of TRL's dictionary."""
        return any(column in observer.provides for observer in self.observers)

    def is_observed(self, name: str) -> bool:
        """Return True if an observer requires data of the batch that no part may have named."""
        return any(observer.requires(name) for observer in self.observers)

    @property
    def is_off_policy(self) -> bool:
        """True if an observer lets another policy than the current one generate."""
        return any(observer.is_off_policy for observer in self.observers)

    def log(self, name: str, value: float) -> None:
        """Add a value to a metric of training, or of the current evaluation, whose mean is logged."""
        self.trainer._metrics["train" if self.is_training else "eval"][name].append(value)

    def replace_last(self, name: str, value: float) -> None:
        """Replace the last value of a metric that TRL has logged for the same batch."""
        self.trainer._metrics["train" if self.is_training else "eval"][name][-1:] = [value]

    # -- processes

    def local_rows(self, count: int) -> slice:
        """Return the slice of this process's `count` completions among those of all processes."""
        first = self.accelerator.process_index * count
        return slice(first, first + count)

    def gather_rows(self, x: torch.Tensor | None, name: str = "") -> Any:
        """Gather a tensor over all processes, padded to the longest sequence as TRL pads `name`."""
        if x is None or self.accelerator.num_processes == 1:
            return x
        if x.dim() > 1:
            filling = self.tokenizer.pad_token_id if name in ("prompt_ids", "completion_ids") else 0
            x = self.accelerator.pad_across_processes(x, dim=1, pad_index=filling, pad_first=name in LEFT_PADDED)
        return self.accelerator.gather(x)

    def refuse_sharding(self, problem: str, where: str) -> None:
        """Raise if there is a problem, and FSDP, DeepSpeed or fp16 keeps the trainer from changing gradients itself."""
        trainer = self.trainer
        modes = {"FSDP": trainer.is_fsdp_enabled, "DeepSpeed": trainer.is_deepspeed_enabled, "fp16": self.args.fp16}
        enabled = [name for name, is_enabled in modes.items() if is_enabled]
        if problem and enabled:
            hint = "train on one device or with DDP (`accelerate launch --multi_gpu`), in bf16 or float32"
            raise RlmError(f"{problem} with {enabled[0]}", where=where, hint=hint)
