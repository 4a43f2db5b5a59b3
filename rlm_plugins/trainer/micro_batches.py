"""Which rows are learned from together: micro-batches dealt out anew, and rows that teach nothing left out."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.kernels.chunk_sizes import PRODUCTS
from rlm_plugins.packing import fallback_reasons as reasons
from rlm_plugins.packing.micro_batches import PORTIONS, Sizes, cut, full, joined, portioned
from rlm_plugins.packing.regroup import regroup, teaches
from rlm_plugins.packing.zero_advantage import silent
from rlm_plugins.trainer.logprobs import padded_rows
from rlm_plugins.trainer.target_kl import Stopping


class Dealing(Stopping):
    """The same, that learns from the rows of an optimiser step in the order that costs least."""

    _buffered_inputs: Any

    def __init__(self, **rest: Any) -> None:
        self._silent: tuple[int, bool] = (-1, False)
        self._tallies: dict[str, torch.Tensor] | None = None
        super().__init__(**rest)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's, whose micro-batches are dealt out anew where a generation has just been written."""
        every = self.args.steps_per_generation * self.num_iterations
        is_new = self.model.training and (self._step % every == 0 or self._buffered_inputs is None)
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if is_new and self._may_regroup(self._buffered_inputs):
            dealt = self._dealt(self._buffered_inputs)
            self._buffered_inputs, inputs = dealt, dealt[self._step % self.args.steps_per_generation]
        return inputs

    def _dealt(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The micro-batches of a generation, group by group; by weight, where that decides who is read together."""
        window = self.args.gradient_accumulation_steps
        if (sizes := self._sizes(micro_batches)) is None:
            return regroup(micro_batches, window)
        return portioned(micro_batches, window, sizes, skips=self._skips(), most=self._most_of_all)

    def _sizes(self, micro_batches: list[dict[str, Any]]) -> Sizes | None:
        """How many rows are read together; None: as many as the recipe says."""
        if reasons.by_number(self._speed, self.equation, self.args):
            return None
        (ids, _, width), budget = padded_rows(micro_batches[0]), self._speed.max_tokens_per_micro_batch
        if budget is None:
            weights = sum(x.numel() for x in self.model.parameters())
            return partial(joined, rows=len(ids), budget=PRODUCTS / weights)
        return partial(cut, budget=full(len(ids), ids.shape[1] - width, width) if budget == "auto" else float(budget))

    def _most_of_all(self, count: int) -> int:
        """The largest number of all processes."""
        return max(gather_object([count])) if self.accelerator.num_processes > 1 else count

    def _may_regroup(self, micro_batches: list[dict[str, Any]]) -> bool:
        """Whether only sums over the optimiser step count, each within a generation, and all processes read packed."""
        if reasons.at_random(self._speed, self.equation, self.args, packed=True):
            return False
        return not self._most_of_all(sum(not self._reads_packed(*padded_rows(piece)) for piece in micro_batches))

    def _live(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        """(B,) the rows that the update reads; None: all."""
        if not self._skips():
            return None
        live = teaches(inputs["advantages"])
        self._tally("speed/skipped", (~live).sum().float(), torch.tensor(float(len(live)), device=live.device))
        return live

    def _skips(self) -> bool:
        """Whether rows without advantage are left out of this step."""
        if not self.model.training or reasons.all_read(self._speed, self.args, critic=self.critic is not None):
            return False
        if self._silent[0] != (step := self.state.global_step):  # a coefficient may have moved
            labels = [] if self._writers is None else self._writers.labels
            self._silent = step, all(silent(self.equation, s, labels) for s in self._steps_that_need(step))
        return self._silent[1]

    def _steps_that_need(self, step: int) -> range:
        """This step; where its pass says what the old policy was, all those taken on its generation."""
        count = self.num_iterations if self._old_comes_later() else 1
        first = step - step % count
        return range(first, first + count)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The same, or nothing where a micro-batch was left without a portion."""
        in_generation = self._step % (self.args.steps_per_generation * self.num_iterations) > 0
        if in_generation and self._buffered_inputs is not None:
            buffered = self._buffered_inputs[self._step % self.args.steps_per_generation]
            if buffered.get(PORTIONS) == []:
                return self._pass_over()
        return super().training_step(*args, **kwargs)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The loss of a micro-batch; of several portions all but the last are learned from in here."""
        if PORTIONS not in inputs:
            return self._loss(model, inputs)
        self._tallies = self._tallies or {}
        *early, last = inputs[PORTIONS] or [None]
        done = torch.zeros((), device=self.accelerator.device, requires_grad=last is None)
        for portion in early:
            with self.accelerator.no_sync(model):
                loss = self._loss(model, portion)
                with torch.autocast(loss.device.type, enabled=False):
                    self.accelerator.backward(loss)
            done = done + loss.detach()
        loss = done if last is None else done + self._loss(model, last)
        if self.accelerator.sync_gradients:
            for name, total in self._tallies.items():
                self._write_down(name, total)
            self._tallies = None
        return loss

    def _tally(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Logs a mean over all processes: of a micro-batch; of portions, whose weights differ, over the whole step."""
        found = self.accelerator.reduce(torch.stack([total, count.to(total.dtype)]).detach(), reduction="sum")
        if self._tallies is None:
            self._write_down(name, found)
        else:
            self._tallies[name] = self._tallies.get(name, 0.0) + found

    def _write_down(self, name: str, found: torch.Tensor) -> None:
        mean, count = torch.stack([found[0] / found[1].clamp(min=1.0), found[1]]).tolist()  # a GPU is waited for once
        if count > 0 or not self._speed.skip_zero_advantage:  # what was skipped whole has nothing to say
            self._ledger[name].append(mean)

    def _loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        raise NotImplementedError
