"""Optimizer of an auxiliary model (critic, PRIME), with its own learning rate and gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch

from rlm_plugins.distributed import processes
from rlm_plugins.divergence import check_number, check_weights, max_abs
from rlm_plugins.errors import RlmError
from rlm_plugins.schedule import Schedule, value_at

Mean = Callable[[torch.Tensor], torch.Tensor]
"""Mean of a tensor over the ranks."""


class Trainable(Protocol):
    """A model with its own optimizer: a critic or an auxiliary language model."""

    def parameters(self) -> list[torch.Tensor]:
        """Return the trained parameters."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


P = TypeVar("P", bound=Trainable)


class AuxiliaryOptimizer(Generic[P]):
    """AdamW without weight decay for the trained parameters of one model.

    Early gradients of such a model are large; clipped together with the policy's, they would scale those down. Its
    learning rate is independent of the policy's schedule.

    Args:
        model: The trained model.
        name: Its name in errors.
        learning_rate: A number, or a schedule.
        max_grad_norm: Gradient clipping threshold; 0: no clipping.
        adam: `betas` and `eps`, if other than PyTorch's defaults.
        mean: Averages the gradients over the ranks.
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
        self._max_grad_norm = max_grad_norm or math.inf
        self._initial_max = max_abs(model.parameters())
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, **(adam or {}))

    def step(self, step: int) -> tuple[float, float]:
        """Take an optimizer step on the accumulated gradients.

        Args:
            step: Number of optimizer steps done.

        Returns:
            ‖gradient‖₂ before clipping, and the learning rate.
        """
        weights, rate = self.model.parameters(), float(value_at(self._learning_rate, step))
        self._average_gradients(weights)
        norm = torch.nn.utils.clip_grad_norm_(weights, self._max_grad_norm).item()
        check_number(norm, f"the norm of the gradient of the {self._name}", step)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        check_weights(weights, self._initial_max, f"the {self._name}", step)
        self._optimizer.zero_grad(set_to_none=True)  # before the trainer measures the policy's gradient
        return norm, rate

    def _average_gradients(self, weights: list[torch.Tensor]) -> None:
        """Average the gradients over the ranks; DDP does not handle these weights."""
        if processes().num_processes == 1:
            return  # saves the concatenation, which is as large as the model
        with_grad = [x for x in weights if x.grad is not None]
        if not with_grad:
            return
        gradients = self._mean(torch.cat([x.grad.flatten() for x in with_grad if x.grad is not None]))
        for x, gradient in zip(with_grad, gradients.split([x.numel() for x in with_grad]), strict=True):
            x.grad = gradient.view_as(x)

    def state_dict(self) -> dict[str, Any]:
        return {**self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of model and optimizer.

        Raises:
            RlmError: The state of the optimizer or of the model is missing.
        """
        self.model.load_state_dict({name: x for name, x in state.items() if name != "optimizer"})
        if "optimizer" not in state:
            problem = f"the checkpoint has no optimizer state of the {self._name}: training cannot resume exactly"
            raise RlmError(problem, where=self._name)
        self._optimizer.load_state_dict(state["optimizer"])
