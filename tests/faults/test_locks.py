"""A lock that is held is refused after a change of the clock; without locks of the system, the process decides."""

from __future__ import annotations

import json
import os
import platform
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fault_points import start_child, status_of
from rlm_lab.doctor import local_locks

from rlm_plugins.durable import lock
from rlm_plugins.durable.lock import LOCK, locked
from rlm_plugins.errors import RlmError

pytestmark = pytest.mark.faults(group="writers")


def taken(folder: Path) -> bool:
    try:
        with locked(folder, lambda line: None):
            return True
    except RlmError:
        return False


@pytest.mark.parametrize("has_flock", [True, False])
def test_who_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flock: bool, cases: Any) -> None:
    def hold() -> None:
        with locked(tmp_path):
            time.sleep(600)

    if not has_flock:
        monkeypatch.setattr(lock, "_try_lock", lambda descriptor: None)
    child, file = start_child(hold, tmp_path / "log"), tmp_path / LOCK
    while not file.exists() or not file.read_bytes():
        time.sleep(0.01)
    holder = json.loads(file.read_bytes())
    with cases("a live process"):
        assert not taken(tmp_path)
    with cases("a live process whose start seems to be another"):
        file.write_text(json.dumps(holder | {"started": "other"}))
        assert taken(tmp_path) is not has_flock
    os.kill(child, signal.SIGKILL)
    status_of(child)
    dead = {"host": platform.node(), "pid": child, "started": holder["started"]}
    for name, content, free in (
        ("an ended process", dead, True),
        ("a number that is used again", dead | {"pid": os.getpid()}, True),
        ("another host", dead | {"host": "other"}, has_flock),
        ("garbage", [], True),
    ):
        with cases(name):
            file.write_text(json.dumps(content))
            assert taken(tmp_path) is free


def test_file_systems_with_local_locks_are_told(tmp_path: Path, cases: Any) -> None:
    for system, told in {
        "ext4 /dev/sda1 rw": "",
        "fuse.gcsfuse bucket rw": "fuse.gcsfuse",
        "lustre host:/fs rw,flock": "",
        "lustre host:/fs rw,localflock": "lustre",
        "nfs4 host:/x rw,vers=4.2,local_lock=none": "",
        "nfs host:/x rw,vers=3,local_lock=all": "nfs",
    }.items():
        with cases(system):
            mounts = tmp_path / "mounts"
            mounts.write_text(f"1 0 0:1 / / rw - tmpfs none rw\n2 1 0:2 / {tmp_path} rw shared:1 - {system}\n")
            assert local_locks(tmp_path, mounts) == told
