"""A run whose console is lost goes on, or saves if a signal came with it; each case is a real `rlm train`."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fault_cases import recipe, resume, run, step_of, weights

from rlm_plugins.durable.console import LOST
from rlm_plugins.trainer.checkpoint import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="consoles")]
LONG = 400
"""Steps of a run that a signal ends."""
MATRIX = pytest.mark.matrix
Streams = dict[str, Any]


def first_of(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters; all but the first are left to `make faults`."""
    return [pytest.param(name, marks=MATRIX if place else ()) for place, name in enumerate(names)]


@contextmanager
def terminal() -> Iterator[tuple[int, Streams]]:
    """Yield the side of a new terminal that shows it, and the streams of a process in it."""
    shown, inner = pty.openpty()
    try:
        yield shown, {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
    finally:
        os.close(inner)


def start(file: Path, out: Path, **streams: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rlm_plugins", "train", str(file), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=file.parent, env=environment, preexec_fn=hang_up_is_not_ignored, **streams)


def hang_up_is_not_ignored() -> None:
    """Restore the default of SIGHUP, which `nohup` ignores."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def wait_for_step(out: Path, step: int) -> None:
    deadline = time.monotonic() + 240
    while step_of(out) < step:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def close_reader(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    child.stdout.close()


def both(stream: Any) -> Streams:
    return {"stdout": stream, "stderr": stream}


PIPE, FULL = subprocess.PIPE, os.open("/dev/full", os.O_WRONLY)
AFTER: dict[str, tuple[Streams, Callable[[subprocess.Popen[bytes]], None]]] = {
    "reader of stdout ends": ({"stdout": PIPE, "stderr": subprocess.DEVNULL}, close_reader),
    "reader of both ends": ({"stdout": PIPE, "stderr": subprocess.STDOUT}, close_reader),
    "stdout on a full disk": ({"stdout": FULL}, lambda child: None),
    "both on a full disk": (both(FULL), lambda child: None),
}
"""Streams of the process, and what is done to it after its first step."""


@pytest.mark.parametrize("name", first_of(AFTER))
def test_a_run_ends_without_its_reader(tmp_path: Path, name: str, cases: Any) -> None:
    streams, lose = AFTER[name]
    file, out = recipe(tmp_path, max_steps=30, save_steps=100), tmp_path / "run"
    with cases(name):
        child = start(file, out, **streams)
        wait_for_step(out, 1)
        lose(child)
        assert child.wait(240) == 0
        assert [path.name for path in checkpoints(out / "01-grpo")] == ["checkpoint-30"]
        assert "cannot be written" in (out / LOST).read_text()


def ctrl_c_with_tee(child: subprocess.Popen[bytes], shown: int) -> None:
    """End the reader, as Ctrl-C ends `tee`, before the run has written its line."""
    close_reader(child)
    child.send_signal(signal.SIGINT)


def hang_up(child: subprocess.Popen[bytes], shown: int) -> None:
    """Remove the terminal and send SIGHUP, as a closed window does."""
    os.close(shown)
    child.send_signal(signal.SIGHUP)


STOPS: dict[str, tuple[int, Streams, Callable[[subprocess.Popen[bytes], int], None]]] = {
    "window closed": (129, {}, hang_up),
    "Ctrl-C with 2>&1 | tee": (130, {"stdout": PIPE, "stderr": subprocess.STDOUT}, ctrl_c_with_tee),
    "Ctrl-C with | tee": (130, {"stdout": PIPE}, ctrl_c_with_tee),
}
"""Exit code, streams that are not the terminal, and what ends the run."""


@pytest.mark.parametrize("name", first_of(STOPS))
def test_a_signal_with_the_loss_saves(tmp_path: Path, name: str, cases: Any) -> None:
    status, other, stop = STOPS[name]
    file, out = recipe(tmp_path, max_steps=LONG, save_steps=1000), tmp_path / "run"
    with cases(name), terminal() as (shown, streams):
        child = start(file, out, **{**streams, **other})
        wait_for_step(out, 2)
        stop(child, shown)
        assert child.wait(240) == status
        (saved,) = checkpoints(out / "01-grpo")
        assert int(saved.name.split("-")[1]) == step_of(out)


@MATRIX
def test_a_run_without_a_console_resumes_to_the_same_bytes(tmp_path: Path, cases: Any) -> None:
    with cases("window closed"), terminal() as (shown, streams):
        whole = run(tmp_path, max_steps=40, save_steps=1000)
        file, out = tmp_path / "full.yaml", tmp_path / "run"
        child = start(file, out, **streams)
        wait_for_step(out, 2)
        hang_up(child, shown)
        assert child.wait(240) == 129
        assert weights(resume(out)) == weights(whole)


@MATRIX
def test_a_blocked_terminal_does_not_hold_a_signal(tmp_path: Path, cases: Any) -> None:
    """Fill the pipe, which is never read: the notice of the signal must not wait for a reader."""
    file, out = recipe(tmp_path, max_steps=LONG, save_steps=1000), tmp_path / "run"
    with cases("full pipe"):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
        child = start(file, out, stdout=subprocess.DEVNULL, stderr=writer)
        wait_for_step(out, 2)
        child.terminate()
        deadline = time.monotonic() + 60
        while not checkpoints(out / "01-grpo"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.close(reader)
        assert child.wait(60) == 143
