"""Containment of one call of a reward in this process: a few settings are restored, and the running reward is marked.

`processes: N` isolates everything else, as the reward then runs in processes of its own. The marker is a file of the
run folder that names the reward which ended a process without an error. It is memory-mapped: that costs a microsecond
per call, and it is complete even if the process is killed.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
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
def contained(where: str, step: object) -> Iterator[None]:
    """Restore random generators, working directory, environment variables and settings of torch after a reward.

    Args:
        where: Label, plugin and file of the reward, for the report.
        step: Of the run.
    """
    before = {name: read() for name, (read, _) in _SETTINGS.items()}
    changed: list[str] = []
    with temporary_rng_state() as drawn, _marked(f"{where}, step {step}"):
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


_SIZE = 512
_NAME = ".reward_call"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_marker: mmap.mmap | None = None
_HINT = "`processes: 1` beside this reward calls it in a process of its own, which can crash, exit or be killed alone"


@contextlib.contextmanager
def marked_calls(folder: Path, log_line: Callable[[str], None]) -> Iterator[None]:
    """Mark calls of rewards during the block, in a file per process in `folder`.

    Args:
        folder: The run folder.
        log_line: Called with a line for each reward that was running when a process of the last run ended.
    """
    global _marker
    for call in _interrupted_calls(folder):
        log_line(f"the last process of this run ended without an error during a call of {call}\n  hint: {_HINT}")
    path = folder / f"{_NAME}.{os.environ.get('RANK', '0')}"
    with contextlib.suppress(OSError):  # a read-only or full disk: training does not depend on it
        file = os.open(path, _FLAGS, 0o644)
        try:
            os.write(file, b"\0" * _SIZE)
            _marker = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)
    try:
        yield
    finally:
        if _marker is not None:
            _marker.close()
            _marker = None
            path.unlink(missing_ok=True)


def exchange_marker(marker: mmap.mmap | None) -> mmap.mmap | None:
    """Set the marker and return the previous one; `rlm sweep --race` alternates several runs in one process."""
    global _marker
    previous, _marker = _marker, marker
    return previous


@contextlib.contextmanager
def _marked(text: str) -> Iterator[None]:
    """Write `text` into the marker during the block."""
    marker = _marker
    if marker is None:
        yield
        return
    data = text.encode()[: _SIZE - 1]
    marker[: len(data) + 1] = data + b"\0"
    try:
        yield
    finally:
        if not marker.closed:
            marker[:1] = b"\0"


def _interrupted_calls(folder: Path) -> list[str]:
    """Return the rewards that were running when a process of the last run ended, at most one per process."""
    calls = []
    for file in sorted(folder.glob(f"{_NAME}.*")):
        with contextlib.suppress(OSError):
            text = file.read_bytes()[:_SIZE].partition(b"\0")[0].decode(errors="replace")
            calls += [text] if text else []
    return calls
