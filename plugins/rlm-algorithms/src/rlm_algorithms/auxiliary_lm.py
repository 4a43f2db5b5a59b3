"""Auxiliary models on the policy's frozen base, each with its own adapter, optimizer and learning rate.

Its forward pass is the policy's with another adapter activated, so it costs the memory of an adapter only. Before
training its output equals the base's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.equation.batch import LogprobsOf
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import FILE, Adapter, new_adapter
from rlm_plugins.models.critic import AuxiliaryOptimizer
from rlm_plugins.rollout.dynamic_sampling import pad_to_width
from rlm_plugins.workers.distributed import gather_lists, processes, rank_slice

Ids = Sequence[Sequence[int]]
Loss = Callable[[torch.Tensor, list[int]], torch.Tensor]
"""``loss(logp, indices)``: log-probs (b, width) of some sequences and their indices → their share of a sum over all."""


class AuxiliaryLM:
    """A language model that a part creates in `setup(policy)`, replicated on every rank.

    Args:
        policy: A PEFT model.
        name: Name of the adapter in the layers, and of this model in errors.
        lora: Fields of ``peft.LoraConfig``; None: those of the policy's adapter, without dropout.
        learning_rate: Of AdamW without weight decay.
        max_grad_norm: Gradient clipping threshold; 0: no clipping.
        batch_size: Sequences per forward pass.
        seed: Seed of the initialization of the adapter.

    Raises:
        RlmError: The policy's base is not frozen, or is sharded (FSDP, DeepSpeed).
    """

    def __init__(
        self,
        policy: Any,
        name: str,
        *,
        lora: Mapping[str, Any] | None = None,
        learning_rate: float,
        max_grad_norm: float = 1.0,
        batch_size: int = 16,
        seed: int = 0,
    ) -> None:
        from accelerate.utils import reduce
        from peft import LoraConfig

        if any(x.requires_grad and ".lora_" not in name for name, x in policy.named_parameters()):
            problem = "an auxiliary model requires a frozen base, but weights of the policy's base are trained"
            raise RlmError(problem, where=name, hint="train an adapter only: `model: {lora: {r: …}}`")
        if sharding := _sharding():
            hint = "train on one device or with DDP (`accelerate launch --multi_gpu`)"
            raise RlmError(f"an auxiliary model cannot be trained with {sharding}", where=name, hint=hint)
        self._batch_size, self._device = batch_size, policy.device
        config = adapter_config_like(policy) if lora is None else LoraConfig(**{"task_type": "CAUSAL_LM", **lora})
        self._adapter = new_adapter(policy, _unused_name(policy, name), config, trainable=True, seed=seed)
        mean = partial(reduce, reduction="mean")
        self._optimizer = AuxiliaryOptimizer(
            self._adapter, name=name, learning_rate=learning_rate, max_grad_norm=max_grad_norm, mean=mean
        )

    def active(self) -> AbstractContextManager[None]:
        """Return a context in which the policy generates with this model's adapter instead of its own."""
        return self._adapter.active()

    def logp(
        self, logprobs_of: LogprobsOf, prompts: Ids, completions: Ids, width: int
    ) -> Float[torch.Tensor, "B width"]:
        """Return the log-prob of each completion token, without gradient; 0 at padding.

        Every rank must call this with the same sequences; each computes its share and receives all results.

        Args:
            logprobs_of: `Batch.logprobs_of`.
            prompts: Token ids of the prompts.
            completions: Token ids of the completions.
            width: Number of columns of the result.
        """
        chunks = [torch.zeros(0, width, device="cpu")]
        with torch.no_grad(), self._adapter.active():
            for rows in self._chunks(len(prompts)):
                chunks.append(self._forward(logprobs_of, prompts, completions, rows, width).cpu())
        return torch.cat(gather_lists([torch.cat(chunks)])).to(self._device)

    def train_step(
        self, logprobs_of: LogprobsOf, prompts: Ids, completions: Ids, width: int, loss: Loss, step: int
    ) -> float:
        """Take one optimizer step on the sum of `loss` over all sequences.

        Args:
            logprobs_of: `Batch.logprobs_of`.
            prompts: Token ids of the prompts.
            completions: Token ids of the completions.
            width: Number of columns that `loss` receives.
            loss: Called for every sequence on exactly one rank.
            step: Number of optimizer steps of the policy done.

        Returns:
            ‖gradient‖₂ before clipping.
        """
        with self._adapter.active():
            for rows in self._chunks(len(prompts)):
                total = loss(self._forward(logprobs_of, prompts, completions, rows, width), rows)
                (total * processes().num_processes).backward()  # type: ignore[no-untyped-call]
        for x in self._adapter.parameters():  # a rank may have had no sequence
            x.grad = torch.zeros_like(x) if x.grad is None else x.grad
        return self._optimizer.step(step)[0]

    def sum_over_ranks(self, x: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]:
        """Return the sum over ranks of `x`, which each rank filled for its own sequences (0 for the others)."""
        return torch.stack(gather_lists([x.cpu()])).sum(0).to(x.device)

    def _chunks(self, count: int) -> list[list[int]]:
        """Return the sequence indices of this rank in chunks of `batch_size`."""
        local = list(range(count))[rank_slice(count)]
        return [local[first : first + self._batch_size] for first in range(0, len(local), self._batch_size)]

    def _forward(
        self, logprobs_of: LogprobsOf, prompts: Ids, completions: Ids, rows: list[int], width: int
    ) -> torch.Tensor:
        logp = logprobs_of([prompts[i] for i in rows], [completions[i] for i in rows])
        lengths = torch.tensor([len(completions[i]) for i in rows], device=logp.device)
        mask = torch.arange(width, device=logp.device) < lengths.unsqueeze(1)
        return pad_to_width(logp, width).where(mask, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return weights and optimizer state."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and optimizer state."""
        self._optimizer.load_state_dict(state)


def adapter_config_like(policy: Any) -> Any:
    """Return the config of the policy's adapter, without dropout, for another one that starts as the base."""
    config = copy.deepcopy(policy.peft_config[policy.active_adapter])
    config.lora_dropout, config.bias, config.modules_to_save = 0.0, "none", None
    config.init_lora_weights = True  # so that its output equals the base's
    return config


def load_adapter(policy: Any, name: str, folder: Path) -> Adapter:
    """Load an adapter that PEFT saved in a folder; it is not trainable, and no RNG state is used."""
    from peft import LoraConfig
    from safetensors.torch import load_file

    config = LoraConfig.from_pretrained(folder)
    config.task_type, config.modules_to_save, config.inference_mode = "CAUSAL_LM", None, True
    adapter = new_adapter(policy, name, config, trainable=False)
    saved = {name: x for name, x in load_file(folder / FILE).items() if ".lora_" in name}
    try:
        adapter.load_state_dict(saved)
    except RlmError as error:
        raise RlmError(error.problem, where=str(folder)) from None
    return adapter


def _sharding() -> str:
    """Return the kind of sharding of the weights; empty if they are not sharded."""
    from accelerate.state import AcceleratorState

    sharding = AcceleratorState().distributed_type.value if AcceleratorState._shared_state else ""
    return sharding if sharding in ("FSDP", "DEEPSPEED", "MEGATRON_LM") else ""


def _unused_name(policy: Any, name: str) -> str:
    """Return `name` with a number that no adapter in the policy's layers has."""
    used = {key for module in policy.modules() for key in getattr(module, "lora_A", ())}
    return next(f"{name}{number}" for number in count() if f"{name}{number}" not in used)
