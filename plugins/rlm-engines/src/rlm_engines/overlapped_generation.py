"""Generation during the update, by a second process with a copy of the policy (`trainer.generation_device`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rlm_engines.checks import check_plain_sampling
from rlm_engines.second_process import SecondProcess, TrainerPolicy
from rlm_engines.stale_policy import StalePolicy, Weights, batch_seed
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.prompt_source import InOrder

WHERE = "trainer.generation_device"
HINT = "leave `generation_device` out: the same samples without a second process; `--resume` continues the run"
TIMEOUT = 3600.0
"""Seconds that the trainer waits for a batch."""


class OverlappedGeneration(StalePolicy):
    """Requests each generation batch as soon as the weights that sample it exist: `stale` steps before its update.

    The completions are those of the simulation (`stale_policy.py`) to the bit, on the same kind of device with as many
    threads. Prompts follow from the order of the epochs, random numbers from seed and step. So nothing is
    added to a checkpoint: batches in flight are generated again from the weights that it holds.

    Attributes:
        process: The engine; None outside of a training run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.process: SecondProcess | None = None
        self._batches: dict[int, tuple[list[list[int]], Future[Any]]] = {}
        self._next_step = -1
        self._order: InOrder | None = None
        self._thread, self._started = ThreadPoolExecutor(1), Future[Any]()

    def configure(self, arguments: dict[str, Any]) -> None:
        """Set TRL's `rollout_func`: the completions of the second process.

        Raises:
            RecipeError: A rollout source, tool or environment generates.
        """
        check_plain_sampling(arguments)
        arguments["rollout_func"] = lambda prompts, trainer: self.collect(prompts, trainer.generate)

    def attach(self, trainer: Any) -> None:
        """Store the collaborators of the trainer, which is one process."""
        super().attach(trainer)
        self._trainer, components = trainer, trainer.components
        self.prompts, self.generation, self.tokens = components.prompts, components.generation, components.tokens
        self.context.refuse_sharding("`generation_device` is not supported", WHERE)
        if (count := self.context.accelerator.num_processes) > 1:
            raise RlmError(f"expected one training process, got {count}", where=WHERE, hint=HINT)

    @property
    def device(self) -> str:
        """Device of the second process."""
        return str(self.context.args.generation_device)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Change nothing: the second process samples."""
        yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """Run the second process inside a ``with`` block; on a CPU each process uses half of the threads."""
        worker_threads, trainer_threads = self._threads()
        original_threads, process = torch.get_num_threads(), SecondProcess(device=self.device, threads=worker_threads)
        process.where, process.hint = WHERE, HINT
        self._batches, self._next_step, self.process = {}, -1, process
        self._thread = ThreadPoolExecutor(1)  # one message after the other, beside the update
        torch.set_num_threads(trainer_threads)
        try:
            yield
        finally:
            self.process = None
            process.close()
            self._thread.shutdown(cancel_futures=True)
            process.close()  # one that started meanwhile
            torch.set_num_threads(original_threads)

    def _threads(self) -> tuple[int, int]:
        """Return the threads of the second process and of this one."""
        num_threads = torch.get_num_threads()
        if self.device != "cpu" or self.context.accelerator.device.type != "cpu":
            return num_threads, num_threads
        return max(num_threads // 2, 1), max(num_threads - num_threads // 2, 1)

    # -- requests

    def begin_micro_batch(self) -> None:
        """Keep the weights that a later batch needs, and request the batches whose weights exist now."""
        super().begin_micro_batch()
        if self.process is None:
            return
        step, args = self.context.step, self.context.args
        if self._next_step < 0:
            self._start(self.process, step)
        while self._next_step <= min(step + self.steps, self._trainer.state.max_steps - 1):
            assert self._order is not None
            rows = self._order.take(args.generation_batch_size // args.num_generations)
            texts = [self.prompts.dataset[i]["prompt"] for i in rows for _ in range(args.num_generations)]
            ids = self.tokens.prompt_ids(texts)
            sampling = {"seed": batch_seed(args.seed, self._next_step), "step": self._next_step}
            weights = self.weights_for(self._next_step)
            call = partial(self._generate, self.process, weights, ids, sampling)
            self._batches[self._next_step] = ids, self._thread.submit(call)
            self._next_step += self._updates

    @property
    def _updates(self) -> int:
        """Optimizer steps on each generation batch."""
        return self.context.micro_steps_per_generation // int(self.context.args.gradient_accumulation_steps)

    @staticmethod
    def _generate(
        engine: SecondProcess, weights: Weights, prompts: list[list[int]], sampling: dict[str, Any]
    ) -> list[list[int]]:
        """Return the completions of a batch, with padding."""
        engine.sync(weights.items(), sampling["step"])
        return engine.generate(prompts, sampling).ids

    def _start(self, process: SecondProcess, step: int) -> None:
        """Send the policy, and advance to the first batch of a run that starts or resumes at step `step`."""
        context, args = self.context, self.context.args
        policy = context.accelerator.unwrap_model(context.model)
        base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
        generator = self.generation.generator
        description = TrainerPolicy(
            folder="",
            dtype="",
            adapter=policy.peft_config[policy.active_adapter] if base is not policy else None,
            end_token_ids=list(self.tokens.eos_token_ids),
            sequences=args.generation_batch_size,
            rank=0,
            settings=SimpleNamespace(pad_to_multiple_of=args.pad_to_multiple_of),
            model_class=type(base),
            config=base.config,
            defaults=base.generation_config,
            decoding=self.generation.decoding,
            generator=None if generator is None else _generator_address(generator),
            mixed_precision=context.accelerator.mixed_precision,
            prepare=self.passes.preparation(),
        )
        weights = policy.state_dict()

        def start() -> None:
            process.start(description)
            process.sync(weights.items(), step)

        self._started = self._thread.submit(start)
        size = len(self.prompts.dataset)
        self._order, self._next_step = InOrder(lambda epoch: self.prompts.order(size, epoch, args.seed)), step
        for _ in range(step // self._updates):
            self._order.take(args.generation_batch_size // args.num_generations)

    # -- the batch of this step

    def collect(self, prompts: Sequence[Any], generate: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:
        """Return the completions of the batch that is trained on now, as TRL's `rollout_func` does.

        Args:
            prompts: One per completion.
            generate: Generates with the policy of this process, for evaluation.

        Raises:
            RlmError: The second process ended, failed or is late.
        """
        ids = self.tokens.prompt_ids(prompts)
        if self.process is None or not self.context.is_training:
            return {"prompt_ids": ids, "completion_ids": generate(prompts)[0], "logprobs": None}
        expected, future = self._batches.pop(self.context.step)
        if ids != expected:
            problem = f"step {self.context.step + 1}: expected the prompts that were generated ahead, got others"
            raise RlmError(problem, where=WHERE, hint=HINT)
        start = time.perf_counter()
        try:
            self._started.result(TIMEOUT)  # its error is the cause of later ones
            rows = future.result(TIMEOUT)
        except TimeoutError:
            problem = f"expected completions of the process that generates on '{self.device}' within {TIMEOUT:g} s"
            raise RlmError(f"{problem}, got none", where=WHERE, hint=f"shorter completions? {HINT}") from None
        self.context.log("stale/wait", time.perf_counter() - start)
        return {"prompt_ids": ids, "completion_ids": [self._until_end(row) for row in rows], "logprobs": None}

    def _until_end(self, ids: list[int]) -> list[int]:
        """Return token ids up to the first end token."""
        end = next((i for i, token in enumerate(ids) if token in self.tokens.eos_token_ids), len(ids))
        return ids[: end + 1]


def _generator_address(generator: Bound) -> tuple[str, dict[str, Any], str]:
    """Return name, knobs and file of a part; the file is empty for an installed plugin."""
    module = generator.part.target.__module__
    file = getattr(sys.modules.get(module), "__file__", "") if module.startswith("rlm_file_") else ""
    return generator.part.full_name, dict(generator.knobs), file or ""
