"""Containment of one call of a reward in this process: a few settings are restored.

`processes: N` isolates everything else, as the reward then runs in processes of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rlm_plugins.equation.rng_state import temporary_rng_state

_LOG = logging.getLogger(__name__)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def _set_folder(folder: str | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _set_variables(before: Mapping[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the working directory": (_folder, _set_folder),
    "the environment variables": (os.environ.copy, _set_variables),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
}
"""Name in messages → functions that read and set it."""
_reported: set[tuple[str, str]] = set()
"""Reward and name of a changed setting: each is reported once."""


@contextlib.contextmanager
def contained(where: str) -> Iterator[None]:
    """Restore random generators, working directory, environment variables and settings of torch after a reward."""
    before = {name: read() for name, (read, _) in _SETTINGS.items()}
    changed: list[str] = []
    with temporary_rng_state() as drawn:
        try:
            yield
        finally:
            changed += [f"the random numbers of {name}" for name in drawn()]
            for name, (read, restore) in _SETTINGS.items():
                if read() != before[name]:
                    restore(before[name])
                    changed.append(name)
            _report(where, changed)


def _report(where: str, changed: list[str]) -> None:
    """Warn once for each setting that a reward changed."""
    new = [name for name in changed if (where, name) not in _reported]
    _reported.update((where, name) for name in new)
    if new:
        is_random = any("random" in name for name in new)
        advice = (
            "give it a random generator of its own" if is_random else "undo it there, or set `processes: 1` beside it"
        )
        _LOG.warning("%s changed %s; restored. hint: %s", where, ", ".join(new), advice)
