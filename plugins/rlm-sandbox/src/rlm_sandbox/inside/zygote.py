"""The zygote: a clean interpreter that has imported the usual modules, and forks once per role of a sample.

It holds no secret, runs no code it receives, and has one control socket, which no sample inherits. Its commands:
``fork`` (with a socket, which becomes the sample's only connection) and ``end`` (kill all forked processes and
report). A script is the role whose program reads standard input and writes standard output.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import signal
import socket
import stat
import sys
import threading
import types
from collections.abc import Callable
from os import _exit  # a script replaces `os._exit`
from typing import Any, NoReturn

from rlm_sandbox.inside import examiner, lock, preload
from rlm_sandbox.inside.candidate import answer_calls
from rlm_sandbox.inside.channel import Channel, error_message

_STREAMS = ((0, "r"), (1, "w"))
WRITTEN = 4
"""Second descriptor of the standard output: the program may close 1, as `open(1, "w")` does."""


def prepare(text: str) -> None:
    """Put `text` into descriptor 0 and an empty file into 1. Both are in memory; RLIMIT_FSIZE limits 1."""
    for descriptor, data in ((0, text.encode("utf-8", "surrogatepass")), (1, b"")):
        memory = os.memfd_create("sample")
        os.dup2(memory, descriptor)
        os.close(memory)
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(1, WRITTEN)


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Run the program as ``__main__`` and send its output, or its error."""
    _connect()
    os._exit = _leave_with_output(channel, os._exit)  # type: ignore[assignment]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    stdout, flush, join, run_exit_functions = sys.stdout, _flush, _join, atexit._run_exitfuncs
    try:
        try:
            exec(compile(job["source"], "<program>", "exec", dont_inherit=True), vars(main))
        except SystemExit as error:
            if not _is_success(error.code):
                raise
        join()
        run_exit_functions()
        flush(stdout)
        if sys.stdout is not stdout:  # the program replaced it
            flush(sys.stdout)
    except BaseException as error:
        channel.send(error_message(error))
        return
    channel.send({"value": _output()})


def _connect() -> None:
    """Open Python's standard streams on the descriptors of `prepare`."""
    atexit._clear()
    stdin, stdout = (
        os.fdopen(n, mode, encoding="utf-8", errors="surrogateescape", closefd=False) for n, mode in _STREAMS
    )
    sys.stdin = sys.__stdin__ = stdin  # type: ignore[misc,assignment]
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc,assignment]
    os.fstat = _size_only  # type: ignore[assignment]


def _size_only(descriptor: int) -> os.stat_result:
    """Return the size, which fast readers need from `os.fstat`; the real call may use a path, which is forbidden."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _is_success(code: object) -> bool:
    return code is None or (type(code) in (int, bool) and code == 0)


def _leave_with_output(channel: Channel, leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """Return an `os._exit` that sends the output before: what is in descriptor 1, as the real one flushes nothing."""

    def _exit(status: int) -> NoReturn:
        try:
            channel.send({"value": _output()} if _is_success(status) else error_message(SystemExit(status)))
        finally:
            leave(0)

    return _exit


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except ValueError:  # the program closed or detached it, which flushed it
        return


def _join() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _output() -> str:
    size = os.lseek(WRITTEN, 0, os.SEEK_END)
    os.lseek(WRITTEN, 0, os.SEEK_SET)
    data = b""
    while len(data) < size and (chunk := os.read(WRITTEN, size - len(data))):
        data += chunk
    return data.decode("utf-8", "replace")


CONTROL, NOWHERE, CHANNEL = 0, 2, 3


def main() -> None:
    """Prepare, report the locks, and fork until the control socket closes."""
    control = socket.socket(fileno=CONTROL)
    settings = json.loads(sys.argv[1])
    try:
        missing = preload.load(settings["modules"], settings["paths"])
        examiner.install_stand_ins()
        base = lock.address_space()
        locks = lock.lock_zygote()
        lock.prepare()
    except Exception as error:
        control.send(f"failed {type(error).__name__}: {error}".encode())
        return
    gc.collect()
    gc.freeze()  # keeps the collector from touching, hence copying, shared memory
    control.send(b"ready " + json.dumps({**locks, "missing": missing}).encode())
    serve(control, base, settings["open"])


def serve(control: socket.socket, base: int, unlocked: bool) -> None:
    """Execute the commands of the control socket."""
    children: list[int] = []
    own_pid = os.getpid()
    while True:
        command, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if command == b"fork":
            child = os.fork()
            if child == 0:
                be_sample(control, descriptors[0], {"base": base, "open": unlocked}, own_pid)
            os.close(descriptors[0])
            children.append(child)
            continue
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        children.clear()
        if command != b"end":
            return
        control.send(b"ended")


def be_sample(control: socket.socket, channel: int, limits: dict[str, int], parent: int) -> None:
    """Lock this process, run its role, and exit."""
    try:
        control.detach()
        os.dup2(channel, CHANNEL)
        os.dup2(NOWHERE, 0)
        os.dup2(NOWHERE, 1)
        os.closerange(CHANNEL + 1, 256)
        random.seed(0)  # makes programs repeatable
        play(CHANNEL, limits, parent)
    finally:
        with contextlib.suppress(BaseException):
            _exit(0)


def play(descriptor: int, limits: dict[str, int], parent: int) -> None:
    """Receive the role, open the files it needs, lock the process, and run it."""
    channel = Channel(descriptor)
    job = channel.receive()
    limits |= job["limits"]
    script = job["role"] == "script"
    if script:
        prepare(job["stdin"])
    try:
        lock.lock_sample({**limits, "output": limits["output"] if script else 0}, parent)
    except OSError as error:
        channel.send({"refused": str(error)})
        return
    channel.send({"ready": True})
    play_role: Any = {"script": run_script, "calls": answer_calls, "examiner": examiner.examine}[job["role"]]
    play_role(channel, job)
