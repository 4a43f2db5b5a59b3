"""Settings of the trainer beside TRL's (hook ``rlm_settings``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import Setting


def _check(config: Any) -> None:
    """Raise RecipeError if there is one update per generation batch, or an update spans two."""
    if config.target_kl is None:
        return
    micro_batches = config.steps_per_generation * config.num_iterations
    updates, remainder = divmod(micro_batches, config.gradient_accumulation_steps)
    if remainder or updates < 2:
        raise RecipeError(
            "it skips the remaining updates on a generation batch, and there is only one: "
            f"{micro_batches} micro-batches, of which an update takes {config.gradient_accumulation_steps}",
            where="trainer.target_kl",
            allowed="two or more whole updates per generation batch",
            hint="`num_iterations: 2` uses each completion twice; `steps_per_generation` splits a generation batch",
        )


def _observer(config: Any) -> Any:
    from rlm_plugins.trainer.observer import TargetKL

    return None if config.target_kl is None else TargetKL(config.target_kl)


TARGET_KL = Setting(
    Annotated[float, Field(gt=0)] | None,
    "With several updates per generation batch: once the mean KL from the policy that sampled it exceeds this, in nats "
    "per token, the updates left on the batch are skipped. None: never.",
    check=_check,
    observer=_observer,
    metrics={"update/kl": "KL before each update, in nats per token", "update/skipped": "1 for a skipped update"},
)


@hookimpl
def rlm_settings() -> dict[str, Setting]:
    return {"target_kl": TARGET_KL}
