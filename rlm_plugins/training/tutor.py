"""Who moves the critic: an optimiser of its own, with its own learning rate and its own clip of the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from rlm_plugins.critic import Critic
from rlm_plugins.errors import RlmError
from rlm_plugins.schedule import Schedule, at
from rlm_plugins.training.processes import processes

Mean = Callable[[torch.Tensor], torch.Tensor]
"""Over the processes."""


class Tutor:
    """AdamW without weight decay on everything a critic trains.

    A young critic's gradient is large; clipped together with the policy's it would scale that down. And the policy's
    schedule is no business of the critic: its learning rate is constant, or moves as the recipe says.

    Args:
        critic: Its pupil.
        learning_rate: A number, or a schedule.
        max_grad_norm: Where its gradient is clipped; 0: nowhere.
        adam: `betas` and `eps`.
        mean: Brings the processes together.
    """

    def __init__(
        self, critic: Critic, *, learning_rate: float | Schedule, max_grad_norm: float, adam: dict[str, Any], mean: Mean
    ) -> None:
        self.critic, self._learning_rate, self._mean = critic, learning_rate, mean
        self._most = max_grad_norm or math.inf
        self._optimizer = torch.optim.AdamW(critic.parameters(), lr=0.0, weight_decay=0.0, **adam)

    def step(self, step: int) -> tuple[float, float]:
        """Moves the critic along what it has learned since the last time.

        Args:
            step: Optimiser steps done.

        Returns:
            ‖gradient‖₂ before the clip, and the learning rate.
        """
        weights, rate = self.critic.parameters(), float(at(self._learning_rate, step))
        self._share(weights)
        norm = torch.nn.utils.clip_grad_norm_(weights, self._most).item()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)  # before the trainer measures the policy's gradient
        return norm, rate

    def _share(self, weights: list[torch.Tensor]) -> None:
        """The same gradient on every process: the critic's weights are not among those that DDP looks after."""
        if processes().num_processes == 1:
            return  # all gradients in one piece are as large as the critic
        learned = [x for x in weights if x.grad is not None]
        if not learned:
            return
        whole = self._mean(torch.cat([x.grad.flatten() for x in learned if x.grad is not None]))
        for x, gradient in zip(learned, whole.split([x.numel() for x in learned]), strict=True):
            x.grad = gradient.view_as(x)

    def state_dict(self) -> dict[str, Any]:
        return {**self.critic.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was saved.

        Raises:
            RlmError: The state of the optimiser is missing, or the value head (`Critic.load_state_dict`).
        """
        self.critic.load_state_dict(state)
        if "optimizer" not in state:
            raise RlmError("the checkpoint has no optimiser of the critic: it cannot go on exactly", where="critic")
        self._optimizer.load_state_dict(state["optimizer"])
