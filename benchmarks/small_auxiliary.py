"""Auxiliary models of parts for a small policy: a table of logits in place of an adapter on the policy's base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from small_policy import Policy, Tokens

Loss = Callable[[torch.Tensor, list[int]], torch.Tensor]
LogprobsOf = Callable[[Sequence[Tokens], Sequence[Tokens]], torch.Tensor]


class AuxiliaryTable:
    """Model of a part with the methods of ``AuxiliaryLM``; `train` of `small_policy` sets its `policy`.

    Args:
        start: Logits (states, tokens) of the initial model, or a module that returns them.
        rate: Of Adam.
    """

    policy: Policy

    def __init__(self, start: torch.Tensor | torch.nn.Module, rate: float) -> None:
        self.table: Callable[[], torch.Tensor]
        if isinstance(start, torch.nn.Module):
            self.table, self.weights = start, list(start.parameters())
        else:
            weight = torch.nn.Parameter(start.clone())
            self.table, self.weights = lambda: weight, [weight]
        self.optimizer = torch.optim.Adam(self.weights, lr=rate)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Return a context in which the policy samples from this table, and computes its log-probs."""
        before, self.policy.logits = self.policy.logits, self.table()
        try:
            yield
        finally:
            self.policy.logits = before

    def logp(
        self, logprobs_of: LogprobsOf, prompts: Sequence[Tokens], completions: Sequence[Tokens], width: int
    ) -> torch.Tensor:
        """Return log-probs (B, width) without gradient, 0 at padding."""
        with torch.no_grad():
            return self._logp(logprobs_of, prompts, completions, width)

    def train_step(
        self,
        logprobs_of: LogprobsOf,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        width: int,
        loss: Loss,
        step: int,
    ) -> float:
        """Train: take an optimizer step on the loss of all completions, and return the norm of the gradient."""
        self.optimizer.zero_grad()
        loss(self._logp(logprobs_of, prompts, completions, width), list(range(len(completions)))).backward()
        self.optimizer.step()
        return torch.stack([weight.grad.norm() for weight in self.weights if weight.grad is not None]).norm().item()

    def sum_over_ranks(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`: there is one process."""
        return x

    def _logp(self, logprobs_of: LogprobsOf, prompts: Any, completions: Any, width: int) -> torch.Tensor:
        with self.active():
            logp = logprobs_of(prompts, completions)
        return torch.nn.functional.pad(logp, (0, width - logp.shape[1]))
