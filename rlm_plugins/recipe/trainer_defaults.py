"""Defaults for ``trainer:`` that differ from TRL's."""

from __future__ import annotations

from typing import Any


def trainer_defaults() -> dict[str, Any]:
    """Return our values for settings that a recipe does not set: quiet, and float32 without an accelerator.

    TRL's default, bf16 autocast, is slower than float32 on most CPUs.
    """
    import torch

    quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    return quiet if torch.accelerator.is_available() else {**quiet, "use_cpu": True, "bf16": False}
