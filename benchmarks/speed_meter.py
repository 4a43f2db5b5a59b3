"""Measurement of an arm of `grpo_speed.py`, from the first step after its warm-up to the last.

The same methods are wrapped in every arm. So each second is *writing* (generation), *scoring* (rewards, old and
reference log-probs) or *learning* (everything else) by the same rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from speed_workloads import Workload
from speed_world import canned
from transformers import TrainerCallback

from rlm_plugins.models.adapters import causal_model

PARTS = ("writing", "scoring", "learning")
Group = tuple[int, list[int], bool]


@dataclass
class Run:
    """The result and the cost of an arm.

    Args:
        seconds: CPU seconds of `PARTS`, each over all steps.
        wall: Wall-clock seconds of all steps.
        once: CPU seconds before the first step, for the self-checks of generator and packed forward pass.
        positions: Tokens of the update: ``padded``, ``live`` (without padding), ``forwarded`` (through the model).
        written: Every completion, in order.
        measured_from: Index of the first completion after the warm-up.
        gradient: Of the first step, as the optimizer receives it.
        weights: The trained parameters at the end.
        groups: Per group the tokens of its prompt, of each completion, and True if any advantage is non-zero.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    wall: float = 0.0
    once: float = 0.0
    positions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("padded", "live", "forwarded"), 0))
    written: list[list[int]] = field(default_factory=list)
    measured_from: int = 0
    gradient: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    weights: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    groups: list[Group] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Total CPU seconds."""
        return sum(self.seconds.values())

    @property
    def tokens(self) -> int:
        """Tokens of all completions after the warm-up."""
        return sum(map(len, self.written[self.measured_from :]))

    def restart(self) -> None:
        """Reset the cost of the steps so far; completions and the first gradient remain."""
        empty = Run()
        self.seconds, self.wall, self.positions, self.groups = empty.seconds, 0.0, empty.positions, []
        self.measured_from = len(self.written)


class Meter(TrainerCallback):
    """Measures a trainer from the first step after its warm-up to the last.

    Args:
        trainer: Not yet started.
        workload: Its workload.
    """

    def __init__(self, trainer: Any, workload: Workload) -> None:
        self.found = Run()
        self.trained = [x for x in trainer.model.parameters() if x.requires_grad]
        self._workload = workload
        self._spent = 0.0
        trainer._generate_single_turn = self._timed("writing", trainer._generate_single_turn, self._see_written)
        score = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = self._timed("scoring", score, self._see_scored)
        passes, name = trainer, "_get_per_token_logps_and_entropies"
        if hasattr(trainer, "components"):  # ours; else TRL's own trainer
            passes, name = trainer.components.passes, "compute"
        setattr(passes, name, self._padded(getattr(passes, name)))
        self._reads = causal_model(trainer.model)
        trainer.add_callback(self)

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == self._workload.warm_up:
            self.found.restart()
        _wait()
        self._began, self._clock, self._spent = time.process_time(), time.perf_counter(), 0.0

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if not len(self.found.gradient):
            self.found.gradient = flat([x.grad for x in self.trained])

    def on_step_end(self, *_: Any, **__: Any) -> None:
        _wait()
        self.found.seconds["learning"] += time.process_time() - self._began - self._spent
        self.found.wall += time.perf_counter() - self._clock

    def _timed(self, part: str, method: Callable[..., Any], see: Callable[[Any], None]) -> Callable[..., Any]:
        """Return the method with its own seconds counted for `part`, without those of timed methods inside it."""

        def timed(*given: Any, **named: Any) -> Any:
            began, before = time.process_time(), self._spent
            if part == "writing" and self._workload.canned:
                found: Any = canned(self._workload, len(given[0])), None
            else:
                found = method(*given, **named)
            within = self._spent - before
            own = time.process_time() - began - within
            self.found.seconds[part] += own
            self._spent += own
            see(found)
            return found

        return timed

    def _see_written(self, found: tuple[list[list[int]], Any]) -> None:
        self.found.written += found[0]

    def _see_scored(self, out: dict[str, Any]) -> None:
        size = self._workload.generations
        asked, said = (out[f"{x}_mask"].sum(1).view(-1, size).tolist() for x in ("prompt", "completion"))
        teaches = (out["advantages"].view(len(asked), size, -1) != 0).any(-1).any(-1).tolist()
        self.found.groups += [(prompt[0], rows, some) for prompt, rows, some in zip(asked, said, teaches, strict=True)]

    def _padded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(model: Any, ids: torch.Tensor, there: torch.Tensor, *rest: Any, **named: Any) -> Any:
            if not torch.is_grad_enabled():
                return method(model, ids, there, *rest, **named)
            self.found.positions["padded"] += ids.numel()
            self.found.positions["live"] += int(there.sum())
            hook = self._reads.register_forward_pre_hook(self._forwarded, with_kwargs=True)
            try:
                return method(model, ids, there, *rest, **named)
            finally:
                hook.remove()

        return counted

    def _forwarded(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.found.positions["forwarded"] += named["input_ids"].numel()


def _wait() -> None:
    """Wait until a GPU has computed everything."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def flat(tensors: list[Any]) -> torch.Tensor:
    """Return all elements as one float32 vector."""
    return torch.cat([x.detach().float().flatten() for x in tensors])
