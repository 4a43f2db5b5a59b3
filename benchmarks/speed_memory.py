"""Memory of an arm of `grpo_speed.py`: the maximum RSS during a step minus that before the first."""

from __future__ import annotations

import contextlib
import gc
import io
import tempfile
from pathlib import Path

import torch
from ppo_memory_arm import resident
from speed_arms import ARMS, DEFAULT, OURS, SPARED, STOCK, build
from speed_workloads import WORKLOADS

HELD = (DEFAULT, STOCK, OURS, SPARED)


def held(workload: str, arm: str) -> int:
    """Return the bytes of an arm in a workload; for a fresh process."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = build(WORKLOADS[workload], ARMS[arm], folder)
        gc.collect()
        for parameter in trainer.model.parameters():
            parameter.sum()  # a page of a file of weights is resident once it is read
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        trainer.train()
    return resident("VmHWM") - before
