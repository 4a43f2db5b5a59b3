"""One arm of `ppo_memory.py`: trains a few steps and tells what they took in bytes and in seconds.

Bytes are counted three ways. *At rest*: every weight, gradient and moment of an optimiser, tensor by tensor. *Peak*:
what is at rest when a step begins, and on top the most that PyTorch's allocator has handed out during it, by the
allocator's own record (`torch.profiler`, `profile_memory`), less the part of TRL's tile of logits that no vocabulary
fills and no machine holds (`untouched`). *RSS*: the most the process had in memory, less what it had before the weights
were made; malloc's spare room is in it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from rlm_plugins import recipe
from rlm_plugins.cli.check import memory
from rlm_plugins.estimate.transformer import HEAD_TOKENS, HEAD_VOCABULARY
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run import trainer_setup as engine

Record = dict[str, Any]


class Probe(TrainerCallback):
    """Measures the steps of a trainer.

    Args:
        trainer: Not yet started.
        profiled: The step whose peak is recorded, counted from 0; None: none is, it would cost time.
    """

    def __init__(self, trainer: Any, profiled: int | None) -> None:
        self.trainer, self.profiled = trainer, profiled
        self.seconds: list[float] = []
        self.gradients = self.peak = 0
        self._record: Any = None
        if trainer._tutor is not None:
            move = trainer._tutor.step

            def seen(step: int) -> Any:
                self._see_gradients()
                return move(step)

            trainer._tutor.step = seen

    def weights(self) -> list[torch.Tensor]:
        """Every weight there is, each once."""
        critic = [] if self.trainer.critic is None else self.trainer.critic.parameters()
        own = [*self.trainer.model.parameters(), *critic]
        return list({id(x): x for x in own}.values())

    def optimiser(self) -> int:
        """Bytes of the moments of all optimisers."""
        tutor = [] if self.trainer._tutor is None else [self.trainer._tutor._optimizer]
        states = (state for made in (self.trainer.optimizer, *tutor) for state in made.state.values())
        return size(x for state in states for name, x in state.items() if name != "step")

    def _see_gradients(self) -> None:
        self.gradients = max(self.gradients, size(x.grad for x in self.weights() if x.grad is not None))

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._see_gradients()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        gc.collect()
        if state.global_step == self.profiled:
            self.rest = size(self.weights()) + self.optimiser()
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
    """Bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


def highest(record: Any) -> int:
    """The most that was allocated since a record began."""
    level = most = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            level += event.nbytes()
            most = max(most, level)
    return most


def resident(field: str) -> int:
    """Bytes of this process in memory: now (``VmRSS``) or at the most (``VmHWM``)."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def probed(profiled: int | None) -> Iterator[list[Probe]]:
    """While it lasts, an engine's trainer is measured and its result not saved."""
    made: list[Probe] = []

    def run(trainer: Any, stage: Any) -> None:
        made.append(Probe(trainer, profiled))
        trainer.add_callback(made[0])
        trainer.save_critic = lambda folder: None
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()

    usual = engine.run
    engine.run = run
    try:
        yield made
    finally:
        engine.run = usual


def train(document: Record, profiled: int | None) -> tuple[Probe, Record]:
    """Trains the only stage of a recipe; the measurements, and what `rlm check` expected."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recipe.yaml"
        file.write_text(json.dumps(document))
        (stage,) = compose(recipe.load(file), Registry())
        stage.folder = Path(folder) / "run"
        expected = memory(engine.forecast(stage))
        with probed(profiled) as made:
            stage.engine(stage)
    return made[0], expected


def bytes_of(document: Record) -> Record:
    """What the third step of an arm holds, and what `rlm check` says it would; in a fresh process."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    probe, expected = train(document, profiled=2)
    said = expected["always"]
    return {
        "parameters": size(probe.weights()),
        "gradients": probe.gradients,
        "optimiser": probe.optimiser(),
        "peak": probe.peak - untouched(probe.trainer, expected["load"]),
        "rss": probe.rss - before,
        "expected": {
            "parameters": sum(said[name] for name in said if "weights" in name),
            "gradients": sum(said[name] for name in said if "gradients" in name),
            "optimiser": sum(said[name] for name in said if "optimizer" in name),
            "peak": expected["peak"],
        },
    }


def untouched(trainer: Any, load: Record) -> int:
    """Bytes of a float32 tile of logits beyond the vocabulary: TRL allocates it at full width."""
    length = load["prompt_len"] + load["completion_len"] - 1  # the last token predicts nothing
    tokens = load["micro_batch_size"] * length
    spare = HEAD_VOCABULARY - trainer.model.config.vocab_size
    return 4 * min(tokens, HEAD_TOKENS) * max(spare, 0)


def seconds_of(document: Record) -> float:
    """CPU seconds of the last step of an arm."""
    return train(document, profiled=None)[0].seconds[-1]
