"""A kill, or a full or broken disk, at any file operation of a run: nothing saved is lost; an error names the file."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, check_last_save, recipe, resume, weights
from fault_points import States, at_every_point, copied, error_of

from rlm_plugins.cli import app
from rlm_plugins.errors import RlmError
from rlm_plugins.run.launch import launch

pytestmark = pytest.mark.slow
CODES = (errno.ENOSPC, errno.EIO)
Failed = Callable[[int, str, int, int, str], None]
EVERY_ONE = [pytest.param(kind, 1, marks=[pytest.mark.full, pytest.mark.matrix]) for kind in KINDS]
"""Kind of run, and after how many of its operations there is a fault again."""


def failing(folder: Path, every: int, parents: list[int], failed: Failed) -> Callable[[int, str], None]:
    """Return an action that starts a child process in which one operation fails, on a copy of the folder.

    Args:
        folder: The run.
        every: Operations are tried at numbers that this divides.
        parents: Filled with the process whose operations these are.
        failed: Called after each child with number, operation, error, exit code and output.
    """
    log, aside = folder.with_name("child.log"), folder.with_name("aside")

    def fail(number: int, operation: str) -> None:
        for code in CODES if number % every == 0 and os.getpid() in parents else ():
            if folder.exists():
                folder.rename(aside)  # open files stay those of this process
                shutil.copytree(aside, folder, symlinks=True)
            child = os.fork()
            if child == 0:
                descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(descriptor, sys.stdout.fileno())
                os.dup2(descriptor, 2)
                raise error_of(code, operation)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            failed(number, operation, code, status, log.read_text(errors="replace"))
            shutil.rmtree(folder, ignore_errors=True)
            if aside.exists():
                aside.rename(folder)

    return fail


@pytest.mark.faults(group="F5")
@pytest.mark.parametrize(("kind", "every"), [("adapter", 240), *EVERY_ONE])
def test_disk_fails_at_every_operation(tmp_path: Path, kind: str, every: int, cases: Any) -> None:
    file, out, into = recipe(tmp_path, kind, max_steps=2), tmp_path / "run", tmp_path / "states"
    states, told = States(out, into), tmp_path / "told.jsonl"

    def failed(number: int, operation: str, code: int, status: int, output: str) -> None:
        states.add(number * len(CODES) + CODES.index(code), operation)
        with told.open("a") as lines:
            lines.write(json.dumps([number, operation, code, status, (out / "summary.json").exists(), output]) + "\n")

    def train() -> None:
        parents.append(os.getpid())
        if status := app(["train", str(file), "--out", str(out)], standalone_mode=False):
            raise SystemExit(status)

    parents: list[int] = []
    at_every_point(train, out, failing(out, every, parents, failed), tmp_path / "log")
    expected = weights(out)
    for number, operation, code, status, ended, output in map(json.loads, told.read_text().splitlines()):
        with cases(f"{kind}, {errno.errorcode[code]} at operation {number}: {operation}"):
            assert "Traceback" not in output, output
            if status == 0:
                assert ended, output  # harmless: what could not be removed or renamed is removed later
            else:
                assert status == 2, output
                told_as = (
                    r"cannot be saved: .*\n  hint: is the disk full" if "torch" in operation else os.strerror(code)
                )
                assert re.search(rf"error: .*{re.escape(str(out))}.*{told_as}", output), output
    for number, operation, run in copied(into):
        with cases(f"{kind}, resumed after operation {number}: {operation}"):
            if not (run / "recipe.yaml").exists():
                with pytest.raises(RlmError, match="there is no run to resume"):
                    launch(file, [], out=run, resume=True)
            else:
                assert weights(resume(run)) == expected


def killed_at_every_operation(folder: Path, kind: str) -> tuple[Path, dict[str, bytes], int]:
    """Train once; return the folder of all states in which a kill would leave the run, its result, and their count."""
    file, out, into = recipe(folder, kind, max_steps=2), folder / "run", folder / "states"
    states = States(out, into)
    count = at_every_point(lambda: launch(file, [], out=out), out, states.add, folder / "log")
    return into, weights(out), count


@pytest.mark.faults(group="F1")
@pytest.mark.parametrize(("kind", "every"), [("critic", 144), *EVERY_ONE])
def test_kill_at_every_operation(tmp_path: Path, kind: str, every: int, cases: Any) -> None:
    """Kills after the last checkpoint are included: then only the steps after training are repeated."""
    into, expected, count = killed_at_every_operation(tmp_path, kind)
    found = list(copied(into))
    assert count > len(found) > 60
    for place, (number, operation, run) in enumerate(found):
        with cases(f"{kind}, operation {number}: {operation}"):
            check_last_save(run)
            if not (run / "recipe.yaml").exists():
                with pytest.raises(RlmError, match="there is no run to resume"):
                    launch(tmp_path / f"{kind}.yaml", [], out=run, resume=True)
            elif place % every == 0:
                assert weights(resume(run)) == expected
                assert json.loads((run / "summary.json").read_text())["after"] is not None
