"""Which problems next, and how the rows of all processes are brought together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl import GRPOTrainer

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.dynamic_sampling import LEFT_PADDED
from rlm_plugins.rollout.prompt_sampler import PromptSampler
from rlm_plugins.rollout.prompt_source import PromptSource


class Problems(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose problems come in the order of a sampler.

    Args:
        order: (size, epoch, seed) → the order in which an epoch visits the problems.
        desk: Hands out the problems of each generation; None: the data loader does. (With a desk it is only the clock.)
        **trl: Everything GRPOTrainer takes.
    """

    def __init__(
        self, *, order: Callable[[int, int, int], Sequence[int]], desk: PromptSource | None = None, **trl: Any
    ) -> None:
        self._order, self._desk = order, desk
        self._problem: torch.Tensor | None = None
        super().__init__(**trl)

    @property
    def _sampler(self) -> Bound | None:
        """Who is asked before every generation which problems come next; None: nobody."""
        return None if self._desk is None else self._desk.sampler

    @property
    def _ledger(self) -> Any:
        """Name → numbers, of which the mean is logged: those of training, or of an evaluation while there is one."""
        return self._metrics["train" if self.model.training else "eval"]

    def _get_train_sampler(self, dataset: Any = None) -> PromptSampler:
        size = len(self.train_dataset if dataset is None else dataset)
        return PromptSampler(
            order=lambda epoch: self._order(size, epoch, self.args.seed),
            size=size,
            prompts=self.args.generation_batch_size // self.num_generations,
            generations=self.num_generations,
            repeats=self.num_iterations * self.args.steps_per_generation,
        )

    def _next_problems(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows to write now: what the data loader brings, or what the desk hands out in their stead."""
        if self._desk is None or not self.model.training:
            self._problem = None
            return inputs
        count = self.args.generation_batch_size // self.num_generations
        problems = torch.tensor(self._desk.take(count, self.state.global_step))
        self._problem = problems.repeat_interleave(self.num_generations).to(self.accelerator.device)
        return [dict(self.train_dataset[i]) for i in self._problem[self._mine(len(inputs))].tolist()]

    def _mine(self, rows: int) -> slice:
        """Where the `rows` rows of this process stand among those of all."""
        first = self.accelerator.process_index * rows
        return slice(first, first + rows)

    def _gather_rows(self, x: torch.Tensor | None, name: str = "") -> Any:
        """The rows of all processes, padded to the longest as TRL pads what goes by `name`."""
        if x is None or self.accelerator.num_processes == 1:
            return x
        if x.dim() == 2:
            filling = self._tokenizer.pad_token_id if name in ("prompt_ids", "completion_ids") else 0
            x = self.accelerator.pad_across_processes(x, dim=1, pad_index=filling, pad_first=name in LEFT_PADDED)
        return self.accelerator.gather(x)
