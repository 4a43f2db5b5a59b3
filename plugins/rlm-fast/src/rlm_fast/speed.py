"""The sections `speed` and `memory` of a recipe: optimizations that change no gradient, and the estimate of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlm_plugins.errors import RlmError, is_out_of_memory
from rlm_plugins.registry.setting import Section

if TYPE_CHECKING:
    from rlm_fast.workload import Forecast
    from rlm_plugins.stage import Stage


PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
"""Instructions of every x86-64 processor, for the kernels of torch and the products of MKL."""


@dataclass(frozen=True, kw_only=True)
class Speed(Section):
    """Optimizations that change no gradient; `speed: none` turns all of them off."""

    padding_free: Annotated[
        bool, Field(description="forward passes without padding, with each prompt once per group")
    ] = True
    skip_zero_advantage: Annotated[
        bool, Field(description="leave completions of advantage 0 out of the update, if they have no gradient")
    ] = True
    group_micro_batches: Annotated[
        bool, Field(description="fill micro-batches group by group within an optimizer step")
    ] = True
    reuse_old_logprobs: Annotated[
        bool, Field(description="take old log-probs from the first pass over a generation, or from decoding")
    ] = True
    merge_micro_batches: Annotated[
        bool, Field(description="run small micro-batches of an optimizer step in one pass (CPU)")
    ] = True
    fused_lora: Annotated[
        bool,
        Field(
            description="add LoRA's product to that of its base layer in place; compute gated MLPs at once (float32)"
        ),
    ] = True
    tune_kernels: Annotated[
        bool, Field(description="choose kernels and sizes by measurement at the start of a run (CPU)")
    ] = True
    max_tokens_per_micro_batch: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"] | None,
        Field(
            description="tokens of a micro-batch, a prompt counted once per group; `auto`: those of the recipe's "
            "micro-batch at full length; default: the recipe's number of completions",
        ),
    ] = None

    portable: Annotated[
        bool,
        Field(
            description="the instructions that every x86-64 processor has: slower, and the same bits on each "
            "(`speed: portable`; with the same number of threads)"
        ),
    ] = False

    on_by_default = True
    needs_equation = True

    @property
    def environment(self) -> Mapping[str, str] | None:  # type: ignore[override]
        """The variables that fix the instructions of torch and MKL."""
        return PORTABLE if self.portable else None

    def passes(self, context: Any, trl_forward: Callable[..., Any]) -> Any:
        from rlm_fast.passes import PackedPasses

        return PackedPasses(self, context, trl_forward)

    def callbacks(self, stage: Stage, run: Any, console: Any) -> Sequence[Any]:
        """Return the callback that prints one line on the fast paths at the start of a stage."""
        from rlm_fast.speed_report import FastPathLine

        return [FastPathLine(stage, console)]

    @contextmanager
    def training(self, stage: Stage, run: Any) -> Iterator[None]:
        """Use the kernels that were measured for this machine, or at the start of a resumed stage, inside the block."""
        import torch

        from rlm_fast import tuning
        from rlm_fast.linear_layers import keep_freed_memory
        from rlm_fast.tuning import applied
        from rlm_plugins.workers.distributed import from_main_process

        def values() -> dict[str, int]:
            recorded = run.manifest().get("stages", {}).get(stage.name, {})
            chosen: dict[str, int] = recorded["tuning"] if "tuning" in recorded else tuning.values(self)
            run.record(stage, tuning=chosen)
            return chosen

        if not torch.accelerator.is_available():
            keep_freed_memory()
        if self.portable:
            _check_portable(torch.backends.cpu.get_cpu_capability())
        onednn: Any = torch.backends.mkldnn
        before = onednn.enabled
        onednn.enabled = before and not self.portable  # it has kernels for each processor
        try:
            with applied(from_main_process(values)):
                yield
        finally:
            onednn.enabled = before

    def check_data(self, stage: Stage, args: Any) -> list[str]:
        """Return the lines of ``rlm check`` on decoding, fast paths and kernels."""
        from rlm_fast import tuning
        from rlm_fast.speed_report import fast_path_lines, generation_lines

        return [*generation_lines(stage, args), *fast_path_lines(stage, args), tuning.line(self)]


NO_SPEED = Speed(**{field.name: False for field in fields(Speed) if field.default is True})
"""All optimizations off: TRL's own passes and micro-batches."""


def _check_portable(capability: str) -> None:
    """Check that torch was loaded with the variables of `PORTABLE`; later ones have no effect."""
    if capability != "DEFAULT" or any(os.environ.get(name) != value for name, value in PORTABLE.items()):
        line = " ".join(f"{name}={value}" for name, value in PORTABLE.items())
        problem = f"expected the kernels of every processor, got those for {capability}: torch was loaded before"
        raise RlmError(problem, where="speed.portable", hint=f"start Python with {line}, or train with `rlm train`")


class Memory(Section):
    """Estimate of the memory of a stage: gradient checkpointing is on by default only where a step needs it."""

    on_by_default = True

    def __init__(
        self,
        *,
        share: Annotated[
            float,
            Field(gt=0, le=1, description="share of the machine's memory that a step without checkpointing may fill"),
        ] = 0.8,
        on_oom: Annotated[
            Literal["stop", "halve"],
            Field(
                description="out of memory in an update: the run stops, or goes on with micro-batches of half the size "
                "in the same optimizer steps (one process)"
            ),
        ] = "stop",
    ) -> None:
        self._share, self._on_oom = share, on_oom
        self._latest: Forecast | None = None

    def settings(self, stage: Stage, args: Any) -> Mapping[str, Any]:
        from rlm_fast.workload import KEY

        if KEY in stage.settings or not hasattr(args, KEY) or self._forecast(stage, args).needs_checkpointing():
            return {}  # TRL's default is on
        return {KEY: False}

    def retry(self, stage: Stage, error: Exception) -> Stage | None:
        """Return the stage with smaller micro-batches, if memory ran out in an update and the recipe says so."""
        from rlm_fast.workload import halved
        from rlm_plugins.run.failures import is_in_generation
        from rlm_plugins.workers.distributed import processes

        is_alone = processes().num_processes == 1  # the others wait in a collective
        if self._on_oom == "stop" or not is_alone or not is_out_of_memory(error) or is_in_generation(error):
            return None
        return halved(stage)

    def smaller(self, stage: Stage, error: Exception) -> Sequence[str]:
        """Return the settings that lower the memory of the phase in which it ran out, with the estimate of each."""
        from rlm_fast.workload import smaller

        return list(smaller(stage, error))

    def check_data(self, stage: Stage, args: Any) -> dict[str, Any]:
        """Return the estimate in bytes, its load, and the memory of this machine.

        Returns:
            The fields of the estimate, with ``peak``, ``load``, ``decided`` and ``machine``; only ``problem`` if there
            is no estimate for the model.
        """
        from rlm_fast.workload import machine_memory

        forecast = self._forecast(stage, args)
        try:
            load, estimate = forecast.load, forecast.memory
        except RlmError:
            raise
        except Exception as error:  # an unknown model type must not fail the check: a run does not need the estimate
            return {"problem": f"no estimate for this model: {type(error).__name__}: {error}"}
        facts = {"decided": forecast.checkpointing_decision(), "machine": machine_memory()}
        return {**asdict(estimate), "peak": estimate.peak, "load": asdict(load), **facts}

    def _forecast(self, stage: Stage, args: Any) -> Forecast:
        """Return the forecast of a stage; its examples are tokenized once, whatever config the stage gets then."""
        from rlm_fast.workload import Forecast

        if self._latest is None or self._latest.stage is not stage:
            self._latest = Forecast(stage, args, self._share)
        self._latest.args = args
        return self._latest

    def check_lines(self, data: Mapping[str, Any]) -> list[str]:
        from rlm_fast.speed_report import memory_lines

        return memory_lines(data)

    def check_brief(self, data: Mapping[str, Any]) -> str:
        from rlm_fast.speed_report import peak

        return peak(data)
