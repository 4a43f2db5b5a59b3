"""One arm of `ppo_memory.py`: trains a few steps and measures their bytes and seconds.

Bytes are measured in three ways. *At rest*: every weight, gradient and optimizer moment, tensor by tensor. *Peak*: the
bytes at rest when a step begins, and the maximum that PyTorch's allocator adds during it, according to `torch.profiler`
(`profile_memory`). From that the unused part of TRL's tile of logits is subtracted (`untouched`). *RSS*: the maximum
resident memory of the process minus that before the weights were created; it includes malloc's overhead.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rlm_fast.memory_estimate import HEAD_TOKENS, HEAD_VOCABULARY
from rlm_fast.speed import Memory
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.stage import Place, RunState
from rlm_plugins.trainer import options

Record = dict[str, Any]


class Probe(TrainerCallback):
    """Measures the steps of a trainer.

    Args:
        trainer: Not yet started.
        profiled: The step whose peak is recorded, from 0; None: no recording, which would cost time.
    """

    def __init__(self, trainer: Any, profiled: int | None) -> None:
        self.trainer, self.profiled = trainer, profiled
        self.seconds: list[float] = []
        self.gradients = self.peak = 0
        self._record: Any = None
        if trainer.components.critic.optimizer is not None:
            move = trainer.components.critic.optimizer.step

            def seen(step: int) -> Any:
                self._see_gradients()
                return move(step)

            trainer.components.critic.optimizer.step = seen

    def weights(self) -> list[torch.Tensor]:
        """Return every parameter once."""
        critic = [] if self.trainer.critic is None else self.trainer.critic.parameters()
        own = [*self.trainer.model.parameters(), *critic]
        return list({id(x): x for x in own}.values())

    def optimizer(self) -> int:
        """Return the bytes of the moments of all optimizers."""
        critic = self.trainer.components.critic.optimizer
        tutor = [] if critic is None else [critic._optimizer]
        states = (state for optimizer in (self.trainer.optimizer, *tutor) for state in optimizer.state.values())
        return size(x for state in states for name, x in state.items() if name != "step")

    def _see_gradients(self) -> None:
        self.gradients = max(self.gradients, size(x.grad for x in self.weights() if x.grad is not None))

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._see_gradients()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        gc.collect()
        if state.global_step == self.profiled:
            self.rest = size(self.weights()) + self.optimizer()
            self._record = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self._record.start()
        self._began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds.append(round(time.process_time() - self._began, 2))
        if self._record is not None:
            self._record.stop()
            self.peak, self._record = self.rest + highest(self._record), None
        elif self.profiled is not None:
            self.rss = resident("VmHWM")


def size(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


def highest(record: Any) -> int:
    """Return the maximum bytes allocated since a recording began."""
    level = most = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            level += event.nbytes()
            most = max(most, level)
    return most


def resident(field: str) -> int:
    """Return the resident bytes of this process: now (``VmRSS``) or the maximum (``VmHWM``)."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


def train(document: Record, profiled: int | None) -> tuple[Probe, Record]:
    """Train the only stage of a recipe; return the measurements and the estimate of `rlm check`."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recipe.yaml"
        file.write_text(json.dumps(document))
        (stage,) = compose(recipe.load(file), Registry())
        stage = replace(stage, place=Place(Path(folder) / "run"))
        expected = Memory().check_data(stage, options.arguments(stage))
        trainer = stage.trainer.build(stage, RunState())
        probe = Probe(trainer, profiled)
        trainer.add_callback(probe)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
    return probe, expected


def bytes_of(document: Record) -> Record:
    """Return the bytes of the third step of an arm and the estimate of `rlm check`; for a fresh process."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    probe, expected = train(document, profiled=2)
    terms = expected["always"]
    return {
        "parameters": size(probe.weights()),
        "gradients": probe.gradients,
        "optimizer": probe.optimizer(),
        "peak": probe.peak - untouched(probe.trainer, expected["load"]),
        "rss": probe.rss - before,
        "expected": {
            "parameters": sum(terms[name] for name in terms if "weights" in name),
            "gradients": sum(terms[name] for name in terms if "gradients" in name),
            "optimizer": sum(terms[name] for name in terms if "optimizer" in name),
            "peak": expected["peak"] - terms["process"],
        },
    }


def untouched(trainer: Any, load: Record) -> int:
    """Return the bytes of a float32 tile of logits beyond the vocabulary: TRL allocates its full width."""
    tokens = load["micro_batch_size"] * (load["prompt_len"] + load["completion_len"] - 1)  # not the last
    spare = HEAD_VOCABULARY - trainer.model.config.vocab_size
    return 4 * min(tokens, HEAD_TOKENS) * max(spare, 0)


def seconds_of(document: Record) -> float:
    """Return the CPU seconds of the last step of an arm."""
    return train(document, profiled=None)[0].seconds[-1]
