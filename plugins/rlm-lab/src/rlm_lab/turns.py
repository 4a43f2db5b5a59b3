"""Turns of several trainers in one process: one optimizer step each, with its own state of the process."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from accelerate.state import GradientState
from transformers import TrainerCallback

from rlm_plugins.durable.stop_signals import Interrupted
from rlm_plugins.rewards import call_marker


class ProcessState:
    """State of the process that a trainer changes: random numbers, gradient accumulation, the marker of rewards."""

    def __init__(self) -> None:
        self._random, self._numpy, self._torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._gradient = dict(GradientState._shared_state)
        self._marker = call_marker.exchange(None)
        call_marker.exchange(self._marker)

    def restore(self) -> None:
        """Make it the state of the process."""
        random.setstate(self._random)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        GradientState._shared_state.clear()
        GradientState._shared_state.update(self._gradient)
        call_marker.exchange(self._marker)


class Turns:
    """Tasks in threads, of which one runs at a time; `pass_on` ends the turn of a task.

    Args:
        tasks: Name → task.

    Attributes:
        errors: Name → exception that ended a task.
    """

    def __init__(self, tasks: Mapping[str, Callable[[], object]]) -> None:
        self.errors: dict[str, BaseException] = {}
        self._tasks, self._waiting = tasks, list(tasks)
        self._changed = threading.Condition()
        self._stopped_by: Interrupted | None = None

    def run(self) -> None:
        """Run all tasks to their end, one turn after the other.

        Raises:
            Interrupted: A signal arrived; every task has ended.
        """
        start = ProcessState()  # each task begins with the same random numbers
        threads = [threading.Thread(target=self._run, args=(name, start), name=name) for name in self._tasks]
        while any(thread.ident is None or thread.is_alive() for thread in threads):
            try:
                for thread in threads:
                    if thread.ident is None:
                        thread.start()
                for thread in threads:
                    thread.join()
            except Interrupted as stop:  # raised in the main thread, between two steps
                self._stopped_by = stop
        start.restore()
        if self._stopped_by is not None:
            raise self._stopped_by

    def pass_on(self, name: str) -> None:
        """Give the turn to the next task, and wait for the next turn.

        Raises:
            Interrupted: A signal ended the race.
        """
        state = ProcessState()
        with self._changed:
            self._waiting.append(self._waiting.pop(0))
            self._changed.notify_all()
            self._await_turn(name)
        state.restore()
        if self._stopped_by is not None:
            raise Interrupted(self._stopped_by.number)

    def _run(self, name: str, start: ProcessState) -> None:
        with self._changed:
            self._await_turn(name)
        try:
            start.restore()
            if self._stopped_by is None:
                self._tasks[name]()
        except Interrupted as stop:
            self._stopped_by = self._stopped_by or stop
        except BaseException as error:
            self.errors[name] = error
        finally:
            with self._changed:
                self._waiting.remove(name)
                self._changed.notify_all()

    def _await_turn(self, name: str) -> None:
        self._changed.wait_for(lambda: self._waiting[0] == name)


class TurnPerStep(TrainerCallback):  # type: ignore[misc]
    """Callback that ends the turn of its task before each optimizer step.

    Args:
        turns: Of the race.
        name: Of this task.
    """

    def __init__(self, turns: Turns, name: str) -> None:
        self._turns, self._name = turns, name

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Give the turn to the next trainer."""
        self._turns.pass_on(self._name)
