"""Containment of one call of a reward in this process: its changes to the process are reverted and reported."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlm_plugins.rewards.call_marker import marked
from rlm_plugins.rewards.process_state import NOT_RESTORED, unchanged

_LOG = logging.getLogger(__name__)
_reported: set[tuple[str, str]] = set()
"""Label of a reward and name of a changed item: each is reported once."""
threads: dict[threading.Thread, str] = {}
"""Thread that outlived a call and would keep the process alive → label of the reward that started it."""


@contextlib.contextmanager
def contained(label: str, where: str, trainer_state: Any = None) -> Iterator[None]:
    """Restore the state of the process after a reward, and mark the reward as running.

    Args:
        label: Of the reward.
        where: Its plugin and file, for the report.
        trainer_state: State of the trainer, which the reward may receive.
    """
    fields, threads_before = dict(vars(trainer_state)) if trainer_state is not None else {}, _threads()
    changed: list[str] = []
    with marked(f"{where}, step {fields.get('global_step', '?')}"), unchanged(changed.extend):
        try:
            yield
        finally:
            changed += [f"trainer_state.{name}" for name, x in fields.items() if _restore_field(trainer_state, name, x)]
            threads.update(dict.fromkeys(_threads() - threads_before, label))
    if changed:
        _report(label, where, changed)


def _restore_field(state: Any, name: str, before: Any) -> bool:
    """Restore a field of the trainer's state, and return True if it had changed."""
    after = getattr(state, name, None)
    if after is before or (isinstance(before, int | float | str) and after == before):
        return False
    setattr(state, name, before)
    return True


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _report(label: str, where: str, changed: list[str]) -> None:
    """Warn once for each item that a reward changed."""
    new = [name for name in changed if (label, name) not in _reported]
    _reported.update((label, name) for name in new)
    if new:
        advice = "give it a random generator of its own" if any("random" in name for name in new) else "undo it there"
        outcome = "restored" if not any(NOT_RESTORED in name for name in new) else "all else is restored"
        _LOG.warning("%s changed %s; %s. hint: %s", where, ", ".join(new), outcome, advice)


def end_threads(seconds: float = 10.0) -> list[str]:
    """Wait for threads that rewards left behind; return those that still run, each with its reward."""
    executor = sys.modules.get("concurrent.futures.thread")
    executor_threads = getattr(executor, "_threads_queues", {})  # Python ends these itself
    running = []
    for thread, label in threads.items():
        if thread.is_alive() and thread not in executor_threads:
            thread.join(seconds / max(1, len(threads)))
            running += [f"'{thread.name}' of the reward '{label}'"] if thread.is_alive() else []
    return running
