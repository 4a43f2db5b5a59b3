"""A second language model on the policy's own frozen base: an adapter of its own, and an optimiser of its own.

It is read by the policy's own pass, while its adapter stands where the policy's does; so it costs the memory of an
adapter, and one that has learned nothing says what the base says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.batch import Read
from rlm_plugins.distributed import processes, share, together
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import drawn
from rlm_plugins.models.auxiliary_optimizer import AuxiliaryOptimizer
from rlm_plugins.rollout.dynamic_sampling import pad_to_width

Ids = Sequence[Sequence[int]]
Loss = Callable[[torch.Tensor, list[int]], torch.Tensor]
"""Log-probabilities (b, width) of some rows and their numbers → their part of a sum over all rows."""


class SecondModel:
    """A language model that a part makes when it meets the policy. Every process has it, and all have the same.

    Args:
        policy: A PEFT model.
        name: What its layers call the adapter, and errors this model.
        lora: Fields of ``peft.LoraConfig``; None: those of the policy's adapter, without its dropout.
        learning_rate: Of AdamW without weight decay.
        max_grad_norm: Where its gradient is clipped; 0: nowhere.
        batch_size: How many rows are read at once.
        seed: New adapters are drawn at random, by this number alone.

    Raises:
        RlmError: The policy's base is not frozen, so that nothing can stand on it, or lies in pieces (FSDP, DeepSpeed).
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
        if any(x.requires_grad and ".lora_" not in name for name, x in policy.named_parameters()):
            problem = "it stands on the policy's frozen base, and weights of this one are trained"
            raise RlmError(problem, where=name, hint="train an adapter alone: `model: {lora: {r: …}}`")
        if sharding := _sharding():
            hint = "train on one device or with DDP (`accelerate launch --multi_gpu`)"
            raise RlmError(f"it cannot be trained with {sharding}", where=name, hint=hint)
        self._batch_size, self._device = batch_size, policy.device
        self._adapter = drawn(policy, _free(policy, name), _config(policy, lora), learns=True, seed=seed)
        self._tutor = AuxiliaryOptimizer(
            self._adapter, called=name, learning_rate=learning_rate, max_grad_norm=max_grad_norm, mean=_over_processes
        )

    def logp(self, read: Read, prompts: Ids, completions: Ids, width: int) -> Float[torch.Tensor, "B width"]:
        """How likely it finds each token of the completions, without gradient; 0 where a row has none.

        Every process asks for the same rows, reads its share, and gets all.

        Args:
            read: The word of that name of the scoring room.
            prompts, completions: Token ids.
            width: Of the table.
        """
        found = [torch.zeros(0, width, device="cpu")]
        with torch.no_grad(), self._adapter.reading():
            found += [self._read(read, prompts, completions, rows, width).cpu() for rows in self._mine(len(prompts))]
        return torch.cat(together([torch.cat(found)])).to(self._device)

    def learn(self, read: Read, prompts: Ids, completions: Ids, width: int, loss: Loss, step: int) -> float:
        """One step of its optimiser down the sum of `loss` over all rows.

        Args:
            read, prompts, completions, width: As above.
            loss: Is asked about every row, on one of the processes.
            step: Optimiser steps of the policy done.

        Returns:
            ‖gradient‖₂ before the clip.
        """
        with self._adapter.reading():
            for rows in self._mine(len(prompts)):
                here = loss(self._read(read, prompts, completions, rows, width), rows)
                (here * processes().num_processes).backward()  # type: ignore[no-untyped-call]
        for x in self._adapter.parameters():  # a process may have had no row
            x.grad = torch.zeros_like(x) if x.grad is None else x.grad
        return self._tutor.step(step)[0]

    def everywhere(self, x: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]:
        """What each process has noted of its rows while it learned (0 of the others), on all of them."""
        return torch.stack(together([x.cpu()])).sum(0).to(x.device)

    def _mine(self, rows: int) -> list[list[int]]:
        """The rows of this process, as many at a time as are read at once."""
        mine = list(range(rows))[share(rows)]
        return [mine[first : first + self._batch_size] for first in range(0, len(mine), self._batch_size)]

    def _read(self, read: Read, prompts: Ids, completions: Ids, rows: list[int], width: int) -> torch.Tensor:
        logp = read([prompts[i] for i in rows], [completions[i] for i in rows])
        there = torch.tensor([[t < len(completions[i]) for t in range(width)] for i in rows], device=logp.device)
        return pad_to_width(logp, width).where(there, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return self._tutor.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there.

        Raises:
            RlmError: It was saved on another base, or without its optimiser.
        """
        self._tutor.load_state_dict(state)


def _config(policy: Any, lora: Mapping[str, Any] | None) -> Any:
    from peft import LoraConfig

    if lora is not None:
        return LoraConfig(**{"task_type": "CAUSAL_LM", **lora})
    config = copy.deepcopy(policy.peft_config[policy.active_adapter])
    config.lora_dropout, config.bias, config.modules_to_save = 0.0, "none", None
    config.init_lora_weights = True  # says what the base says
    return config


def _sharding() -> str:
    """What has the weights in pieces, each on another device; empty where they are whole."""
    from accelerate.state import AcceleratorState

    kind = AcceleratorState().distributed_type.value if AcceleratorState._shared_state else ""
    return kind if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM") else ""


def _free(policy: Any, name: str) -> str:
    """A name that no adapter of the policy has, in its list or beside it."""
    taken = {key for module in policy.modules() for key in getattr(module, "lora_A", ())}
    return next(f"{name}{number}" for number in count() if f"{name}{number}" not in taken)


def _over_processes(x: torch.Tensor) -> torch.Tensor:
    from accelerate.utils import reduce

    mean: torch.Tensor = reduce(x, reduction="mean")
    return mean
