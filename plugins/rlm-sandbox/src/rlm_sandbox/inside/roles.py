"""The roles of a locked sample: run a script, answer calls, or examine; one role per process."""

from __future__ import annotations

from typing import Any

from rlm_sandbox.inside import lock
from rlm_sandbox.inside.candidate import answer_calls
from rlm_sandbox.inside.channel import Channel
from rlm_sandbox.inside.examiner import examine
from rlm_sandbox.inside.script import prepare, run_script


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
    play_role: Any = {"script": run_script, "calls": answer_calls, "examiner": examine}[job["role"]]
    play_role(channel, job)
