"""What a micro-batch costs: the loss of the equation, on the counts and statistics of its optimiser step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.packing.regroup import counts_by_row
from rlm_plugins.schedule import Schedule
from rlm_plugins.step import objective
from rlm_plugins.step_batch import build_step_batch
from rlm_plugins.trainer.micro_batches import Dealing


class Learning(Dealing):
    """The same, with the loss of the equation.

    Args:
        schedules: Name → schedule of a knob, to be logged.
    """

    def __init__(self, *, schedules: Mapping[str, Schedule] | None = None, **rest: Any) -> None:
        self._schedules = schedules or {}
        self._windows: list[tuple[Batch, torch.Tensor]] = []
        self._accumulated = 0
        super().__init__(**rest)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, which begins with a generation, also where an earlier call was broken off in the middle of one."""
        self._step, self._buffered_inputs = 0, None
        self._windows, self._accumulated, self._tallies = [], 0, None
        self._far.clear()
        return super().train(*args, **kwargs)

    def _loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        live = self._live(inputs)
        with self.critic.capture_hidden() if self.critic is not None else nullcontext() as heard:
            logp, entropy, aux_loss = self._read(
                model,
                inputs,
                compute_entropy=True,
                compute_aux_loss=self.aux_loss_enabled,
                live=None if live is None else live.tolist(),
            )
        if self._old_comes_later():
            inputs.setdefault("old_per_token_logps", logp.detach())
        if live is not None:
            logp, entropy = _mute(logp, inputs.get("old_per_token_logps"), live), entropy * live.unsqueeze(1)
        batch = self._learning_batch(inputs, logp, entropy, self._values_now(inputs, heard), live)
        if not counts_by_row(self.equation):
            batch.step_batch, batch.step_batch_rows = self._window(batch, inputs)
        self._measure(batch)
        processes = self.accelerator.num_processes
        loss = objective(batch, self.equation) * processes  # data parallelism averages over processes: undo it
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * aux_loss / self._accumulation()
        batch.log("entropy", entropy.detach())
        for name, schedule in self._schedules.items():
            self._ledger[f"schedule/{name}"].append(schedule.at(batch.step))
        return loss

    def _learning_batch(
        self,
        inputs: dict[str, Any],
        logp: torch.Tensor,
        entropy: torch.Tensor,
        values: torch.Tensor | None,
        live: torch.Tensor | None = None,
    ) -> Batch:
        """A micro-batch with everything the learning parts may name; what is logged is of its live rows."""
        read = inputs["mask"] if live is None else inputs["mask"] * live.unsqueeze(1)
        old_logp = inputs.get("old_per_token_logps")
        accumulation = self._accumulation()
        window = accumulation / self.args.steps_per_generation if self.model.training else 1
        return Batch(
            group=inputs["group"],
            mask=inputs["mask"],
            truncated=inputs["truncated"],
            sources=self._sources(inputs.get("source"), len(inputs["group"])),
            max_completion_length=self.max_completion_length,
            step=self.state.global_step,
            rewards=inputs["rewards"],
            advantages=inputs["advantages"],
            returns=inputs.get("returns"),  # type: ignore[arg-type]
            logp=logp,
            old_logp=logp.detach() if old_logp is None else old_logp,
            expected_logp=inputs.get("expected_logp"),  # type: ignore[arg-type]
            ref_logp=inputs.get("ref_per_token_logps"),  # type: ignore[arg-type]
            rollout_logp=inputs.get("sampling_per_token_logps"),  # type: ignore[arg-type]
            rollout_weight=inputs.get("importance_sampling_ratio"),  # type: ignore[arg-type]
            entropy=entropy,
            values=values,  # type: ignore[arg-type]
            old_values=inputs.get("old_values"),  # type: ignore[arg-type]
            num_tokens=inputs["tokens"].clamp(min=1.0) * window,
            num_sequences=inputs["rows"].clamp(min=1.0) * window,
            num_sequences_all=inputs["all_rows"] * window,
            num_micro_batches=torch.tensor(float(accumulation * self.accelerator.num_processes), device=logp.device),
            log=lambda name, x: self._log_mean(name, x, read),
        )

    def _accumulation(self) -> int:
        """Micro-batches of one process in this optimiser step."""
        return int(self.current_gradient_accumulation_steps) if self.model.training else 1

    def _window(self, batch: Batch, inputs: dict[str, Any]) -> tuple[Batch, torch.Tensor]:
        """The window, and where the rows of this micro-batch stand in it; read once, at its first micro-batch."""
        if not self.model.training:
            return self._read_window(batch, [inputs])[0]
        if not self._windows:
            self._windows = self._read_window(batch, self._upcoming())
        self._accumulated = 0 if self.accelerator.sync_gradients else self._accumulated + 1
        return self._windows.pop(0)

    def _upcoming(self) -> list[dict[str, Any]]:
        """This micro-batch and those after it: to the end of the optimiser step, or of what has been written."""
        buffered, generation = self._buffered_inputs, self.args.steps_per_generation * self.num_iterations
        left = min(self._accumulation() - self._accumulated, generation - self._step % generation)
        return [buffered[(self._step + n) % len(buffered)] for n in range(left)]

    def _read_window(self, batch: Batch, upcoming: list[dict[str, Any]]) -> list[tuple[Batch, torch.Tensor]]:
        """For each of the upcoming micro-batches its window; the first is `batch`, read already."""
        pieces = [batch]
        for inputs in upcoming[1:]:
            with torch.no_grad():
                logp, entropy, _ = self._read(self.model, inputs, compute_entropy=True)
                values = self._values(inputs) if self.critic is not None else None
            pieces.append(self._learning_batch(inputs, logp, entropy, values))
        places = [inputs["row"] for inputs in upcoming]
        window, rows = build_step_batch(pieces, places, self._gather_rows, self.accelerator.process_index)
        return [(window, numbers) for numbers in rows]

    def _log_mean(self, name: str, x: torch.Tensor, mask: torch.Tensor) -> None:
        """The mean of `x` over the trained tokens of all processes."""
        self._tally(name, torch.where(mask.bool(), x, 0.0).sum(), mask.sum())


def _mute(logp: torch.Tensor, old_logp: torch.Tensor | None, live: torch.Tensor) -> torch.Tensor:
    """Rows that were not read stand where they stood: their ratio is 1."""
    return logp.where(live.unsqueeze(1), 0.0 if old_logp is None else old_logp)
