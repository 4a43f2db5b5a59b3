"""The output of a command that is killed, or whose disk is full, is whole or absent, and the next try succeeds."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_cases import run
from fault_points import Points, error_of, in_child

from rlm_plugins.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="outputs")]
COMMANDS: dict[str, tuple[list[str], str]] = {
    "export": (["export", "full", "--to", "out/model"], "out/model"),
    "view": (["view", "full", "--out", "out/page.html"], "out/page.html"),
    "schema": (["explain", "--schema", "out/recipe.json"], "out/recipe.json"),
    "new": (["new", "reward", "other", "--folder", "out"], "out/rlm-other"),
}
"""Arguments, and the file or folder that the command writes."""


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.parametrize("command", COMMANDS)
def test_output_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cases: Any) -> None:
    arguments, name = COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    run(tmp_path, max_steps=1)
    out, log = tmp_path / "out", tmp_path / "log"

    def tried(action: Callable[[int, str], None]) -> int:
        def task() -> int:
            points = Points(out, action)
            points.install()
            app(arguments, standalone_mode=False)
            return points.count

        return in_child(task, log)

    out.mkdir()
    assert tried(lambda number, operation: None) == 0, log.read_text()
    expected, count = contents(tmp_path / name), int(log.read_text().split()[-1])
    assert expected

    def kill(number: int, operation: str, at: int = 0) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def fill(number: int, operation: str, at: int = 0) -> None:
        if number >= at and not operation.startswith(("os.remove", "os.rmdir")):
            raise error_of(errno.ENOSPC, operation)

    for action in (kill, fill):
        for at in range(0, count, max(1, count // 10)):
            with cases(f"{command}, {action.__name__} at {at} of {count}"):
                shutil.rmtree(out)
                out.mkdir()
                status = tried(lambda number, operation, at=at, action=action: action(number, operation, at))
                text = log.read_text()
                assert status == -signal.SIGKILL if action is kill else "cannot be" in text, text
                assert not (tmp_path / name).exists() or contents(tmp_path / name) == expected
                if not (tmp_path / name).exists():
                    assert tried(lambda number, operation: None) == 0, log.read_text()
                    assert contents(tmp_path / name) == expected
                assert [path.name for path in out.iterdir()] == [Path(name).name]
