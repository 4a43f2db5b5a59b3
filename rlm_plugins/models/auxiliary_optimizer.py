"""Who moves a model that learns beside the policy: an optimiser of its own, with its own learning rate and clip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError
from rlm_plugins.schedule import Schedule, at

Mean = Callable[[torch.Tensor], torch.Tensor]
"""Over the processes."""


class Trainable(Protocol):
    """What learns: a critic, or a second model."""

    def parameters(self) -> list[torch.Tensor]:
        """What is trained of it."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


P = TypeVar("P", bound=Trainable)


class AuxiliaryOptimizer(Generic[P]):
    """AdamW without weight decay on everything a model trains.

    The gradient of one that is young is large; clipped together with the policy's it would scale that down. And the
    policy's schedule is no business of its: its learning rate is constant, or moves as the recipe says.

    Args:
        model: Who learns.
        name: What errors call it.
        learning_rate: A number, or a schedule.
        max_grad_norm: Where its gradient is clipped; 0: nowhere.
        adam: `betas` and `eps`, where they are not PyTorch's.
        mean: Brings the processes together.
    """

    def __init__(
        self,
        model: P,
        *,
        name: str,
        learning_rate: float | Schedule,
        max_grad_norm: float,
        mean: Mean,
        adam: dict[str, Any] | None = None,
    ) -> None:
        self.model, self._name, self._learning_rate, self._mean = model, name, learning_rate, mean
        self._most = max_grad_norm or math.inf
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, **(adam or {}))

    def step(self, step: int) -> tuple[float, float]:
        """Moves the model along what it has learned since the last time.

        Args:
            step: Optimiser steps done.

        Returns:
            ‖gradient‖₂ before the clip, and the learning rate.
        """
        weights, rate = self.model.parameters(), float(at(self._learning_rate, step))
        self._share(weights)
        norm = torch.nn.utils.clip_grad_norm_(weights, self._most).item()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)  # before the trainer measures the policy's gradient
        return norm, rate

    def _share(self, weights: list[torch.Tensor]) -> None:
        """The same gradient on every process: the model's weights are not among those that DDP looks after."""
        if processes().num_processes == 1:
            return  # all gradients in one piece are as large as the model
        learned = [x for x in weights if x.grad is not None]
        if not learned:
            return
        whole = self._mean(torch.cat([x.grad.flatten() for x in learned if x.grad is not None]))
        for x, gradient in zip(learned, whole.split([x.numel() for x in learned]), strict=True):
            x.grad = gradient.view_as(x)

    def state_dict(self) -> dict[str, Any]:
        return {**self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was saved.

        Raises:
            RlmError: The state of the optimiser is missing, or something of the model.
        """
        self.model.load_state_dict({name: x for name, x in state.items() if name != "optimizer"})
        if "optimizer" not in state:
            problem = f"the checkpoint has no optimiser of the {self._name}: it cannot go on exactly"
            raise RlmError(problem, where=self._name)
        self._optimizer.load_state_dict(state["optimizer"])
