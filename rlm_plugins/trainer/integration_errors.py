"""Errors of trackers, of the hub and of DeepSpeed during training, as errors of the recipe's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlm_plugins.errors import RecipeError, RlmError


@dataclass(frozen=True)
class Integration:
    """A library that training calls, and that may be unreachable.

    Args:
        modules: Beginning of the names of its modules.
        title: Its name in an error.
        setting: Field of the trainer that turns it on.
        hint: What to do without it.
    """

    modules: tuple[str, ...]
    title: str
    setting: str
    hint: str


INTEGRATIONS = (
    Integration(
        ("transformers.integrations.integration_utils",),
        "a tracker",
        "report_to",
        "log in, use its offline mode (WANDB_MODE=offline), or `report_to: none`; metrics.jsonl has every number",
    ),
    Integration(
        ("huggingface_hub",),
        "the Hugging Face hub",
        "push_to_hub",
        "`hf auth login`, or `push_to_hub: false` and `rlm export RUN --to hub:OWNER/NAME` later",
    ),
    Integration(("deepspeed", "transformers.integrations.deepspeed"), "DeepSpeed", "deepspeed", "leave it out"),
)


@contextmanager
def integration_errors(stage: str) -> Iterator[None]:
    """Raise an error that passed through an integration as one that names its setting.

    Args:
        stage: Name of the stage.

    Raises:
        RecipeError: In place of the error of the integration.
    """
    try:
        yield
    except RlmError:
        raise
    except Exception as error:
        integration = _integration_of(error)
        if integration is None:
            raise
        reason = " ".join(str(error).split())
        problem = f"{integration.title} failed: {type(error).__name__}: {reason}"
        where = f"trainer.{integration.setting} (stage '{stage}')"
        raise RecipeError(problem, where=where, hint=integration.hint) from error


def _integration_of(error: BaseException) -> Integration | None:
    """Return the integration whose code the traceback of an error passes through."""
    modules = []
    frame = error.__traceback__
    while frame is not None:
        modules.append(str(frame.tb_frame.f_globals.get("__name__")))
        frame = frame.tb_next
    for integration in INTEGRATIONS:
        if any(module == name or module.startswith(f"{name}.") for module in modules for name in integration.modules):
            return integration
    return None
