"""The zygote: a clean interpreter that has imported what programs need, and forks once per role of a sample.

It holds no secret, runs nothing it is sent, and has one control line, which no sample inherits. Its words: ``fork``
(with a socket, which becomes the sample's only way out) and ``end`` (kill what was forked, and say so).
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

from rlm_sandbox.inside import examiner, lock, preload, roles

CONTROL, NOWHERE, CHANNEL = 0, 2, 3


def main() -> None:
    """Gets ready, says what holds, and forks until its control line closes."""
    control = socket.socket(fileno=CONTROL)
    settings = json.loads(sys.argv[1])
    try:
        missing = preload.load(settings["modules"], settings["paths"])
        examiner.stand_ins()
        base = lock.address_space()
        holds = lock.lock_zygote()
        lock.prepare()
    except Exception as error:
        control.send(f"failed {type(error).__name__}: {error}".encode())
        return
    gc.collect()
    gc.freeze()  # the collector does not touch, and so copy, what samples share
    control.send(b"ready " + json.dumps({**holds, "missing": missing}).encode())
    serve(control, base, settings["open"])


def serve(control: socket.socket, base: int, unlocked: bool) -> None:
    """Answers the control line."""
    children: list[int] = []
    myself = os.getpid()
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if word == b"fork":
            child = os.fork()
            if child == 0:
                be_sample(control, descriptors[0], {"base": base, "open": unlocked}, myself)
            os.close(descriptors[0])
            children.append(child)
            continue
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        children.clear()
        if word != b"end":
            return
        control.send(b"ended")


def be_sample(control: socket.socket, channel: int, limits: dict[str, int], parent: int) -> None:
    """Locks itself, plays the role it is told, and never comes back."""
    try:
        control.detach()
        os.dup2(channel, CHANNEL)
        os.dup2(NOWHERE, 0)
        os.dup2(NOWHERE, 1)
        os.closerange(CHANNEL + 1, 256)
        random.seed(0)  # the same program says the same every time
        roles.play(CHANNEL, limits, parent)
    finally:
        with contextlib.suppress(BaseException):
            os._exit(0)
