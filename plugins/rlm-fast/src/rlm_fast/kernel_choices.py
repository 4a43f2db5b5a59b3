"""Values of the choices of `tuning.py` for this machine: measured once, then read from the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlm_fast.speed import Speed
from rlm_fast.tuning import CHOICES, measure
from rlm_plugins.durable.files import write_file
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RlmError
from rlm_plugins.run.manifest import processor

FILE = "tuning.json"
"""File of the cache: machine → values."""
OFF = "RLM_TUNING"
"""Environment variable that turns measuring off if it is ``off``."""


def values(*speeds: Speed) -> dict[str, int]:
    """Return the values for a run, by key; empty (the defaults) if no stage has `tune_kernels`, or on a GPU.

    Args:
        *speeds: `speed:` of the stages.
    """
    import torch

    is_enabled = any(speed.tune_kernels for speed in speeds) and os.environ.get(OFF) != "off"
    return tuned() if is_enabled and not torch.accelerator.is_available() else {}


def tuned() -> dict[str, int]:
    """Return the values for this processor, number of threads and version of PyTorch; measured at the first call."""
    file, key = cache_folder() / FILE, _machine()
    cache = _read(file)
    if key in cache:
        return cache[key]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without a cache every run measures
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{file}.lock"))  # runs that start at once use one measurement
        cache = _read(file)
        if key not in cache:
            cache[key] = measure()
            with contextlib.suppress(RlmError):
                write_file(file, json.dumps(cache, indent=1) + "\n")
    return cache[key]


def line(speed: Speed) -> str:
    """Return the line of ``rlm check`` on the values of a stage."""
    measured = values(speed)
    texts = [choice.describe(measured.get(key, choice.value)) for key, choice in CHOICES.items()]
    return f"kernels: {'; '.join(texts)} ({f'measured on {processor()}' if measured else 'defaults, not measured'})"


def _machine() -> str:
    """Return the cache key: processor, threads, version of torch, and candidates."""
    import torch
    from torch.backends.cpu import get_cpu_capability

    choices = [(choice.key, choice.value, *choice.candidates) for choice in CHOICES.values()]
    digest = hashlib.sha256(json.dumps(sorted(choices)).encode()).hexdigest()[:8]
    chip = f"{processor()}; {get_cpu_capability()}"
    return f"{chip}; {torch.get_num_threads()} threads; torch {torch.__version__}; choices {digest}"


def _as_integers(values: Mapping[str, Any]) -> dict[str, int]:
    return {key: int(value) for key, value in values.items()}


def _read(file: Path) -> dict[str, dict[str, int]]:
    """Return the cache; empty if there is none, or if it is damaged."""
    try:
        cache = json.loads(file.read_text())
        return {machine: _as_integers(values) for machine, values in cache.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
