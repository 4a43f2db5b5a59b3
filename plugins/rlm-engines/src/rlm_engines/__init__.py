"""Engines that never touch the base, stale samples (simulated, or generated during the update), workers on Ray."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import PolicyBytes, Setting


def _check_stale(config: Any) -> None:
    if config.stale and config.use_vllm:
        raise RecipeError(
            "`stale` is simulated with the policy's own weights, which vLLM copies at each generation",
            where="trainer.stale",
            hint="leave `use_vllm` out, or train asynchronously in another framework: see docs/staleness.md",
        )


def _check_old_policy(config: Any) -> None:
    if config.old_policy is not None and not getattr(config, "stale", 0):
        problem = "behavior and proximal policy are the same without `stale`"
        raise RecipeError(problem, where="trainer.old_policy", hint="set `stale`, or leave it out")


def _check_device(config: Any) -> None:
    if config.generation_device is not None and not getattr(config, "stale", 0):
        problem = "a batch that is generated during the update requires an earlier policy, but `stale` is 0"
        raise RecipeError(problem, where="trainer.generation_device", hint="set `stale: 1`, or leave it out")


def _check_stage(stage: Any, config: Any, where: str) -> None:
    from rlm_engines.checks import check_overlap

    if config.generation_device is not None:
        check_overlap(stage, config, f"{where}.generation_device")


def _observer(config: Any) -> Any:
    if not config.stale:
        return None
    from rlm_engines.overlapped_generation import OverlappedGeneration
    from rlm_engines.stale_policy import StalePolicy

    return StalePolicy() if getattr(config, "generation_device", None) is None else OverlappedGeneration()


def _engine_check(config: Any) -> Any:
    if not config.engine_check:
        return None
    from rlm_engines.engine_check import EngineCheck

    return EngineCheck()


def _past_weights(policy: PolicyBytes, config: Any) -> int:
    """Return the bytes of the policies that `stale` stores in host memory, the current one included."""
    import torch

    if not config.stale or torch.cuda.is_available():
        return 0
    updates = max(config.steps_per_generation * config.num_iterations // config.gradient_accumulation_steps, 1)
    return policy.trained * (config.stale // updates + 1)


def _second_process(policy: PolicyBytes, config: Any) -> int:
    """Return the bytes of the second process in the memory that is estimated: that of the first GPU, or the host."""
    import torch

    device = getattr(config, "generation_device", None)
    return policy.copy if device in (("cuda", "cuda:0") if torch.cuda.is_available() else ("cpu",)) else 0


SETTINGS = {
    "engine_check": Setting(
        bool,
        "Compare the engine with the policy after each sync on a few tokens, once with disturbed weights, and the "
        "frozen base with that of the start at each checkpoint. The engines of this package set it.",
        observer=_engine_check,
    ),
    "stale": Setting(
        Annotated[int, Field(ge=0, le=1000)],
        "Optimizer steps by which the policy that generates is older than the one that is trained, as in asynchronous "
        "training. Generation and updates alternate as always, unless `generation_device` is set. 0: on-policy. The "
        "weights of each of these steps are kept in memory.",
        check=_check_stale,
        observer=_observer,
        memory_bytes=_past_weights,
        provides=("rollout_logp",),
        metrics={"stale/steps": "age of the samples in optimizer steps"},
    ),
    "old_policy": Setting(
        Literal["behavior", "proximal"] | None,
        "With `stale`, the policy that the ratio divides by: `behavior`, which sampled, or `proximal`, that at the "
        "start of the update. None: `proximal` if a part requires `rollout_logp`, else `behavior`.",
        check=_check_old_policy,
    ),
    "generation_device": Setting(
        str | None,
        "With `stale`, the device of a second process that generates the next batches during the update: `cpu`, "
        "`cuda:1`. It has a copy of the policy. None: this process generates before each update.",
        check=_check_device,
        check_stage=_check_stage,
        memory_bytes=_second_process,
        metrics={"stale/wait": "seconds of generation that the update did not hide"},
    ),
}


@hookimpl
def rlm_settings() -> dict[str, Setting]:
    return SETTINGS


@hookimpl
def rlm_engines() -> dict[str, object]:
    from rlm_engines.reference import Reference
    from rlm_engines.second_process import SecondProcess
    from rlm_engines.vllm_engine import Vllm
    from rlm_engines.vllm_server import VllmServer

    return {"vllm": Vllm, "vllm_server": VllmServer, "second_process": SecondProcess, "reference": Reference}


@hookimpl
def rlm_sections() -> dict[str, object]:
    from rlm_engines.workers import Workers

    return {"workers": Workers}
