"""The zygote: a clean interpreter that has imported the usual modules, and forks once per role of a sample.

It holds no secret, runs no code it receives, and has one control socket, which no sample inherits. Its commands:
``fork`` (with a socket, which becomes the sample's only connection) and ``end`` (kill all forked processes and
report).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import socket
import sys
from os import _exit  # a script replaces `os._exit`
from typing import Any

from rlm_sandbox.inside import examiner, lock, preload
from rlm_sandbox.inside.candidate import answer_calls
from rlm_sandbox.inside.channel import Channel
from rlm_sandbox.inside.script import prepare, run_script

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
